"""The add-ons of this tree: one line takes one in or out."""

# Each module declares its ADD_ON; the folder that it is in has the name of the add-on.
MODULES = (
    "session.addons.engines.addon",
    "session.addons.submitted.addon",
    "session.addons.copies.addon",
    "session.addons.tmux.addon",
    "session.addons.kubernetes.addon",
    "session.addons.slurm.addon",
    "session.addons.ray.addon",
    "surreal_like.addons.hindsight.addon",
    "surreal_like.addons.curriculum.addon",
    "surreal_like.addons.league.addon",
    "surreal_like.addons.gradients.addon",
    "surreal_like.addons.rnd.addon",
    "surreal_like.addons.r2d2.addon",
    "surreal_like.addons.gateway.addon",
    "surreal_like.addons.tuning.addon",
    "surreal_like.addons.join.addon",
    "surreal_like.addons.video.addon",
    "surreal_like.addons.scripts.addon",
    "surreal_like.addons.analysis.addon",
    "surreal_like.addons.tuning_plot.addon",
    "surreal_like.addons.chaos.addon",
    "session.addons.mirror.addon",
    "session.addons.sinks.addon",
    "surreal_like.addons.doctor.addon",
)
