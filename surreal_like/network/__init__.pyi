from surreal_like.network.distribution import Categorical as Categorical
from surreal_like.network.distribution import Distribution as Distribution
from surreal_like.network.distribution import Gaussian as Gaussian
from surreal_like.network.distribution import MultiCategorical as MultiCategorical
from surreal_like.network.distribution import SquashedGaussian as SquashedGaussian
from surreal_like.network.encoder import CNN as CNN
from surreal_like.network.encoder import make_encoder as make_encoder
from surreal_like.network.flat import check_manifest as check_manifest
from surreal_like.network.flat import flatten_parameters as flatten_parameters
from surreal_like.network.flat import load_flat as load_flat
from surreal_like.network.flat import manifest_of as manifest_of
from surreal_like.network.flat import named_tensors as named_tensors
from surreal_like.network.flat import read_flat as read_flat
from surreal_like.network.head import DuelingHead as DuelingHead
from surreal_like.network.head import ScaledValueHead as ScaledValueHead
from surreal_like.network.head import ValueHead as ValueHead
from surreal_like.network.head import make_policy_head as make_policy_head
from surreal_like.network.module import Module as Module
from surreal_like.network.recurrent import GRUCore as GRUCore
from surreal_like.network.recurrent import LSTMCore as LSTMCore
from surreal_like.network.recurrent import make_core as make_core
from surreal_like.network.torso import MLP as MLP
from surreal_like.network.torso import Torso as Torso
from surreal_like.network.torso import make_torso as make_torso

__all__: list[str]
