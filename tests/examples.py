"""How many examples hypothesis tries: conftest loads the profile, a test names its number."""

import hypothesis

# The profile's examples per 100 that a test names: all where the slow tests run, else a quarter.
PROFILES = {"all": 100, "quick": 25}


def register(*, slow: bool) -> None:
    """Load the profile that fits a session with the slow tests, or one without them."""
    for name, number in PROFILES.items():
        hypothesis.settings.register_profile(
            name,
            hypothesis.settings.get_profile("default"),
            max_examples=number,
            # Quick examples are the same in each run, so a green change stays green.
            derandomize=name == "quick",
            # Other processes may have the cores just then: how long one takes proves nothing.
            deadline=None,
            suppress_health_check=[hypothesis.HealthCheck.too_slow],
        )
    hypothesis.settings.load_profile("all" if slow else "quick")


def examples(number: int) -> int:
    """Return this number of examples, or the part of it that the session's profile takes."""
    profile = hypothesis.settings.get_profile(hypothesis.settings.get_current_profile_name())
    return max(1, number * profile.max_examples // PROFILES["all"])
