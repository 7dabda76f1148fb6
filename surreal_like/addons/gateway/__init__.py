"""Gateway: environments outside of the run drive an agent over a socket."""
