from session.did_you_mean import did_you_mean

KNOWN = {"gamma": 0, "gammas": 1, "learning_rate": 2}


def test_the_most_similar_name_is_shown_after_the_lead() -> None:
    assert did_you_mean("gama", KNOWN) == "did you mean gamma?"
    assert did_you_mean("gama", KNOWN, lead="; ") == "; did you mean gamma?"


def test_several_names_are_shown_in_their_other_form() -> None:
    hint = did_you_mean("gama", KNOWN, most=2, shown="algo.".__add__)
    assert hint == "did you mean algo.gamma or algo.gammas?"


def test_a_name_like_no_other_gives_the_other_text_without_the_lead() -> None:
    assert did_you_mean("xyz", KNOWN, lead="; ", otherwise="see the list") == "see the list"
    assert did_you_mean("xyz", KNOWN, lead="; ") == ""


def test_upper_and_lower_case_are_alike() -> None:
    assert did_you_mean("GAMMA", ["gamma"]) == "did you mean gamma?"
    assert did_you_mean("uniformreplay", ["UniformReplay"]) == "did you mean UniformReplay?"
