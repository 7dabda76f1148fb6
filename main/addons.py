"""The add-ons of this tree: one line takes a room in or out."""

# Each module declares its ADD_ON.
MODULES = (
    "session.launchers.tmux.addon",
    "session.launchers.kubernetes.addon",
    "session.launchers.slurm.addon",
    "session.launchers.ray.addon",
    "surreal_like.hindsight.addon",
    "surreal_like.gradients.addon",
    "surreal_like.gateway.addon",
    "surreal_like.tuning.addon",
    "surreal_like.join.addon",
    "surreal_like.analysis.addon",
    "surreal_like.chaos.addon",
    "session.mirror.addon",
    "surreal_like.doctor.addon",
)
