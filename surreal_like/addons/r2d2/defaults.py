"""Settings of sequences: ``learner_config.replay.sequence`` and ``priority.eta``."""

from __future__ import annotations

from session.config.key import FROM_1, SHARE, Key, section

SEQUENCE = section(
    "Sequences of SequenceReplay; batch_size and min_size count them, capacity rows.",
    {
        "length": Key(40, "Learned steps of a sequence.", unit="steps", within=FROM_1),
        "burn_in": Key(
            20,
            "Steps before them that only compute the state of the network.",
            unit="steps",
        ),
        "period": Key(
            20,
            "Steps of an episode between the starts of two sequences, at most length.",
            unit="steps",
            within=FROM_1,
        ),
    },
)

ETA = Key(
    0.9,
    "Priority of a sequence: this share of its largest error, the rest of the mean.",
    within=SHARE,
)
