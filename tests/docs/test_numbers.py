"""Every measured number of README, of the front page and of the results stands in a kept JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from session.config.defaults import BASE_CONFIG
from session.wire.schema import SENDERS_LIMIT
from surreal_like.data.sender import ENTRIES
from tests.docs.examples import blocks
from tests.docs.results import result, shown_result

ROOT = Path(__file__).resolve().parents[2]
ROWS = {
    "this, DQN in eight processes": "surreal_like",
    "a plain script, the same DQN in one process": "plain_dqn",
    "stable-baselines3, DQN": "sb3_dqn",
    "this, PPO in seven processes": "surreal_like_ppo",
    "stable-baselines3, PPO": "sb3_ppo",
}


README = ROOT / "README.md"
FRONT = ROOT / "docs" / "index.md"


def section(title: str = "Results beside other systems") -> str:
    text = (ROOT / "docs" / "results.md").read_text()
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def solved_seconds(name: str, row: str) -> float:
    """Return the median seconds of a row of learn.py, or of our side of another comparison."""
    found = result(name)
    if "learned" in found:
        [kept] = [each["seconds"] for each in found["learned"] if each["name"] == row]
    else:
        [kept] = [each["sides"][row]["value"] for each in found["groups"] if row in each["sides"]]
    return float(kept["median"])


def rounds(name: str, group: str) -> int:
    """Return the rounds of the first group with this beginning."""
    return next(
        int(each["rounds"]) for each in result(name)["groups"] if each["name"].startswith(group)
    )


def test_each_time_of_cartpole_is_named_in_one_place_with_its_clock() -> None:
    clock = re.sub(r"\s+", " ", section("The time of CartPole"))
    summary = result("cartpole_peers")["summary"]
    first, ppo = (
        summary[f"surreal_like{each}"]["greedy_seconds"]["median"] for each in ("", "_ppo")
    )
    goals = [row["seconds"][0] for row in result("scaling")["goals"]]
    picture = (ROOT / "docs" / "images" / "live_table.svg").read_text()
    rows = {
        "cartpole_peers": [f"{first:.1f}", f"{ppo:.1f}"],
        "learn": [f"{solved_seconds('learn', f'cartpole_{each}'):.1f}" for each in ("dqn", "ppo")],
        "gateway": [
            ", ".join(
                f"{solved_seconds('gateway', f'{side} seconds'):.1f}"
                for side in ("agents", "clients")
            )
        ],
        "scaling": [f"{goals[0]:.0f} to {goals[-1]:.0f}"],
        "systems": [f"{solved_seconds('systems', 'ours greedy'):.1f}"],
        "docs/images/live_table": re.findall(r"solved in (\S+) s and", picture)[:1],
    }
    shown = re.findall(r"\| ([\d., to]+) \| [^|]+ \| ([^|]+) \| `([\w/]+)\.\w+` \|", clock)
    found = sorted((seconds, name) for seconds, _, name in shown)
    assert found == sorted((each, name) for name, row in rows.items() for each in row)
    seeds = {"cartpole_peers": "five", "learn": "three", "gateway": "three", "systems": "two"}
    for name, number in seeds.items():
        assert all(f" of {number} seeds" in runs for _, runs, each in shown if each == name)
    assert [rounds("gateway", "CartPole by"), rounds("systems", "CartPole-v1, solved")] == [3, 2]
    assert f"Other pages give **{first:.1f} s** for DQN and {ppo:.1f} s for PPO" in clock
    assert "**starts** with the process of the command" in clock
    assert "over 100 greedy episodes" not in clock
    assert "mean return of 100 greedy episodes, and again over 100 more" in clock


@pytest.mark.parametrize("page", ["README", "docs/performance"])
def test_other_pages_have_one_time_of_cartpole(page: str) -> None:
    first = result("cartpole_peers")["summary"]["surreal_like"]["greedy_seconds"]["median"]
    text = re.sub(r"\s+", " ", (ROOT / f"{page}.md").read_text())
    said = re.findall(r"CartPole is solved by \w+ in ([\d.]+) s", text)
    said += re.findall(r"\[time to the goal on CartPole\].*? \| DQN ([\d.]+) s,", text)
    assert set(said) == {f"{first:.1f}"}


def sides(name: str, group: str) -> Iterator[tuple[str, float, dict[str, float]]]:
    """Yields what each line of the groups with this beginning is about, our median, and ratios."""
    for found in result(name)["groups"]:
        if found["name"].startswith(group):
            for line in found["lines"]:
                ours = float(found["sides"][line["side"]]["value"]["median"])
                yield line["what"], ours, {k: v["median"] for k, v in line["ratios"].items()}


def test_the_short_form_of_performance_is_what_was_measured() -> None:
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "performance.md").read_text())
    into = {what: ours for what, ours, _ in sides("replay", "Small rows in")}
    one, many = (into[f"one step at a time, 100 x {copies}"] for copies in (1, 32))
    out = [ours for _, ours, _ in sides("replay", "Small transitions out")]
    assert f"at {one / 1e6:.2f} million rows/s from one environment" in text
    assert f"at {many / 1e6:.1f} million from 32" in text
    assert f"out at {min(out) / 1e6:.1f} to {max(out) / 1e6:.1f} million rows/s" in text
    frames = {what: (ours, ratios) for what, ours, ratios in sides("replay", "Atari frames")}
    (into_bytes, into_ratio), (out_bytes, out_ratio) = frames["in"], frames["out"]
    better = [min(ratios.values()) for ratios in (into_ratio, out_ratio)]
    said = f"at {into_bytes / 1e9:.0f} GB/s of stacks and come out at {out_bytes / 1e9:.0f} GB/s"
    assert f"{said}, {better[0]:.0f} and {better[1]:.0f} times" in text
    _, steps, ratios = next(sides("actor", "CartPole, agent alone"))
    [share] = ratios.values()
    assert (
        f"makes {round(steps, -3):,.0f} steps/s, {int(100 * share) / 100:.2f} times a bare" in text
    )
    learners = [
        ratio for _, _, each in sides("learner", "The learner alone") for ratio in each.values()
    ]
    said = f"({min(learners):.1f} to {max(learners):.1f} times as many batches per second)"
    assert said in text
    waits = max(ours for _, ours, _ in sides("learner", "The learner waits"))
    assert f"waits for data at most {waits:.1f} % of its time" in text
    rows = [each for each in result("scaling")["scaling"] if each["agents"] <= 64]
    shares = [each["ours"]["per_second"] / each["bare"]["per_second"] for each in rows]
    assert f"make {min(shares):.2f} to {max(shares):.2f} of the steps of processes" in text


def test_chance_of_seeds_is_what_was_measured() -> None:
    names = ("learn", "lunarlander", "learn_multi")
    steps = [each["env_steps"] for name in names for each in result(name)["learned"]]
    most = max(each["max"] / each["min"] for each in steps if each and each["min"])
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "troubleshooting.md").read_text())
    assert f"differ by up to a factor of {most:.1f} in steps" in text


def test_steps_of_a_curve_are_those_of_its_row() -> None:
    learned = {each["name"]: each["env_steps"] for each in result("learn")["learned"]}
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "goals.md").read_text())
    steps = learned["bitflip_dqn"]
    assert f"after {steps['min']:,.0f} to {steps['max']:,.0f} steps" in text


def test_sizes_are_those_of_the_code_and_of_what_was_measured() -> None:
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "sizes.md").read_text())
    rows = {each["agents"]: each["ours"] for each in result("scaling")["scaling"]}
    cores, beside = result("scaling")["machine"]["cores"], sum(rows[128]["cores"].values())
    most = (cores - beside) / rows[128]["cpu"]
    assert f"{1e3 * rows[128]['cpu']:.2f} ms for a step of an agent, {beside:.2f} cores" in text
    assert f"so {most:,.0f} steps/s at most, which are {most / 50:.0f} agents" in text
    made = [f"{rows[agents]['per_second']:,.0f}" for agents in (128, 256)]
    assert f"128 made {made[0]}." in text
    assert f"they made {made[1]}, as" in text
    senders = f"{SENDERS_LIMIT // ENTRIES:,}"
    assert f"accounts of {senders} senders are kept already" in text
    assert f"a shard takes rows of {senders} names" in text
    limit = BASE_CONFIG.session_config.security.max_connections
    assert f"`session_config.security.max_connections` ({limit} at each endpoint)" in text


def test_the_example_of_sizes_adds_up() -> None:
    text = (ROOT / "docs" / "sizes.md").read_text()
    agents, machines = map(int, re.findall(r"example: (\d+) agents on (\d+) machines", text)[0])
    cores, each = map(int, re.findall(r"with (\d+) cores each: `join --agents (\d+)`", text)[0])
    assert machines * each >= agents
    assert each < cores
    assert f"--uses {2 * machines} " in text
    large, half = (
        next(row["network_bytes"] for row in result("fleet")["fleet"] if row["network"] == network)
        for network in ("large", "half")
    )
    assert f"{agents * large * 8 / 1e9:.0f} cables of 1 Gbit/s" in text
    assert f"{100 * agents / 10 * half * 8 / 1e10:.0f} % of it" in text


def row(document: Path, start: str) -> str:
    """Return the row of a table that begins with a text."""
    lines = document.read_text().splitlines()
    return next(line for line in lines if line.startswith(f"| {start}"))


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_the_table_is_what_was_measured(name: str) -> None:
    line = next(line for line in section().splitlines() if line.startswith(f"| {name} "))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    measured = result("cartpole_peers")["summary"][ROWS[name]]
    seconds, steps = measured["greedy_seconds"], measured["env_steps"]
    assert cells[1] == f"{measured['solved']} of {measured['runs']}"
    assert cells[2] == f"{seconds['median']:.1f} s"
    assert cells[3] == f"{seconds['min']:.1f} to {seconds['max']:.1f} s"
    assert cells[4] == f"{steps['median']:,.0f}"
    assert cells[5] == f"{measured['judged_mean_return']['median']:.1f}"


def test_what_differs_from_the_peer_is_said() -> None:
    found = result("cartpole_peers")
    text = section().split("**CartPole-v1**")[1].split("PPO beside further")[0]
    for settings in found["differs"].values():
        assert [key for key in settings if f"`{key}`" not in text] == []
    untrained = [run["seed"] for run in found["runs"]["sb3_ppo"] if run["solved"]["env_steps"] == 0]
    assert [f"(seed {seed})" for seed in untrained] == re.findall(r"\(seed \d+\)", text)


def test_machine_date_versions_and_command_stand_beside_it() -> None:
    machine = result("cartpole_peers")["machine"]
    text = re.sub(r"\s+", " ", section())
    assert machine["date"] in text
    assert f"{machine['cores']} cores" in text
    assert f"torch {machine['versions']['torch'].partition('+')[0]}" in text
    assert f"gymnasium {machine['versions']['gymnasium']}" in text
    command = machine["command"].removeprefix("python ").split(" --name")[0]
    assert command in text


def test_what_is_said_of_pong_is_what_was_measured() -> None:
    text = re.sub(r"\s+", " ", section().split("**Pong**")[1])
    (run,) = [each for each in result("milestones")["milestones"] if each["row"] == "pong_ppo"]
    first, second = run["confirmed"]
    assert f"mean return of {first:.1f} over 10 greedy games, and {second:.1f} over 10" in text
    assert f"after {run['greedy_seconds'] / 60:.0f} minutes and at least" in text
    assert f"at least {run['greedy_env_steps']:,} environment steps" in text
    machine = run["machine"]
    assert f"Seed {run['seed']} alone" in text
    assert f"{machine['processor']}, {machine['cores']} cores, no GPU; {machine['date']}" in text


def test_what_is_said_of_the_biped_is_what_was_measured() -> None:
    text = re.sub(r"\s+", " ", section().split("**BipedalWalker**")[1])
    rows = result("milestones")["milestones"]
    runs = [each for each in rows if each["row"] == "bipedalwalker_ppo"]
    assert all(min(run["confirmed"]) >= 285 for run in runs)
    seeds = [run["seed"] for run in runs]
    assert f"on {len(runs)} of {len(runs)} seeds ({min(seeds)} to {max(seeds)})" in text
    seconds = sorted(run["greedy_seconds"] for run in runs)
    said = f"{seconds[0]:.0f} to {seconds[-1]:.0f} s"
    assert f"{said} after the command's start" in text
    assert f"[{said} on two cores]" in README.read_text()
    # The machine is said for Pong above.
    (pong,) = [each for each in rows if each["row"] == "pong_ppo"]
    for run in runs:
        for key in ("processor", "cores", "date"):
            assert run["machine"][key] == pong["machine"][key]


def test_what_demonstrations_give_is_what_was_measured() -> None:
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "recordings.md").read_text())
    rows = result("milestones")["milestones"]
    for name, words in (
        (", at once, demonstrations", "after {median} environment steps ({range}) with 20"),
        (", at once", "after {median} ({range}) without"),
        (", demonstrations", "{median} ({range}) with them"),
        ("", "{median} ({range}) without, looked at"),
    ):
        runs = [each for each in rows if each["row"] == f"fetchreach_sac{name}"]
        assert sorted(map(_seed, runs)) == [101, 102, 103]
        least, median, most = sorted(run["greedy_env_steps"] for run in runs)
        assert words.format(median=f"{median:,}", range=f"{least:,} to {most:,}") in text
        looks = [[steps for steps, _ in run["curve"] if steps] for run in runs]
        ends = [run["greedy_env_steps"] for run in runs]
        to_goal = sum(each.index(end) + 1 for each, end in zip(looks, ends, strict=True))
        assert f"every {round(sum(ends) / to_goal, -2):,.0f}" in text
    card = yaml.safe_load((ROOT / "configs/trained/fetchreach_sac/card.yaml").read_text())
    assert f"the {card['env_steps']:,} steps in which the demonstrating policy was trained" in text


def test_what_is_said_of_recorded_rows_of_halfcheetah_is_what_was_measured() -> None:
    rows = result("milestones")["milestones"]
    (run,) = (each for each in rows if each["row"] == "halfcheetah_td3_bc")
    said = f"reaches {run['mean_return']:,.0f} after {run['iterations']:,} updates"
    runs = [each for each in rows if each["row"] == "halfcheetah_sac"]
    least, _, median, _, most = sorted(each["judged_mean_return"] for each in runs)
    text = (ROOT / "docs" / "recordings.md").read_text()
    assert said in text
    assert f"one seed, {run['seed']}, as it came" in text
    reached = f"{median:,.0f} ({least:,.0f} to {most:,.0f};"
    assert f"SAC itself, each of which makes such rows, reach {reached}" in text


PEER = "stable-baselines3"
MUJOCO = ("halfcheetah_sac", "halfcheetah_ppo", "hopper_ppo", "walker2d_ppo")


def test_what_is_said_of_mujoco_is_what_was_measured() -> None:
    text = re.sub(r"\s+", " ", section().split("**MuJoCo**")[1])
    rows = result("milestones")["milestones"]
    assert "Seeds 101 to 105, and the intervals are Student's for five of them" in text
    first = {}
    for name in MUJOCO:
        names = (name, f"{name}, {PEER}")
        both = [sorted((r for r in rows if r["row"] == each), key=_seed) for each in names]
        mine, theirs = both
        assert [_seed(run) for run in mine] == [_seed(run) for run in theirs]
        assert [_seed(run) for run in mine] == [101, 102, 103, 104, 105]
        assert all("judged_mean_return" in run and run["curve"] for run in (*mine, *theirs))
        assert "stable-baselines3==2.9.2" in theirs[0]["fingerprint"]
        sums = [sum(run["judged_mean_return"] for run in runs[:3]) for runs in both]
        first[name] = sums[0] / sums[1]
    # Of the row that is missed: the last of them.
    ratio = sum(r["judged_mean_return"] for r in mine) / sum(
        r["judged_mean_return"] for r in theirs
    )
    assert f"{ratio:.2f} of stable-baselines3)" in README.read_text()
    walked = [r for r in rows if r["row"] == f"walker2d_ppo, {PEER}"]
    assert sum(run["judged_mean_return"] > 2800 for run in walked) == 4
    said = f"Walker2d had a ratio of {first['walker2d_ppo']:.2f}"
    assert f"{said}, and Hopper one of {first['hopper_ppo']:.2f}" in text


def test_what_is_said_of_rows_with_few_seeds_is_what_was_measured() -> None:
    text = re.sub(r"\s+", " ", section().split("**MuJoCo**")[1])
    rows = result("milestones")["milestones"]
    names = ("hopper_sac", "walker2d_sac", "halfcheetah_td3")
    assert [sum(run["row"] == name for run in rows) for name in names] == [2, 1, 1]
    assert (
        "Too few seeds to compare have Hopper by SAC (2), and Walker2d by SAC and HalfCheetah by "
        "TD3 (1 each, where the peer was not run)"
    ) in text
    assert not [run for run in rows if run["row"] in (f"{name}, {PEER}" for name in names[1:])]
    resumed = {(run["row"], _seed(run)) for run in rows if run.get("resumed")}
    assert resumed == {
        *(("hopper_sac", seed) for seed in (101, 102)),
        *(("halfcheetah_sac", seed) for seed in (101, 104)),
        *((f"minatar_dqn {game}", 101) for game in ("Asterix", "Breakout")),
    }
    assert (
        "Our runs of Hopper by SAC, seeds 101 and 104 of HalfCheetah by SAC, and MinAtar by DQN "
        "were cut and went on from a checkpoint"
    ) in text


def _seed(run: Mapping[str, Any]) -> int:
    return int(run["seed"])


def test_figures_at_the_top_of_readme_are_what_was_measured() -> None:
    summary = result("cartpole_peers")["summary"]
    seconds = {name: each["greedy_seconds"]["median"] for name, each in summary.items()}
    assert (
        f"| DQN {seconds['surreal_like']:.1f} s, the same in a single file "
        f"{seconds['plain_dqn']:.1f} s, stable-baselines3 {seconds['sb3_dqn']:.1f} s; "
        f"PPO {seconds['surreal_like_ppo']:.1f} s, stable-baselines3 {seconds['sb3_ppo']:.1f} s |"
    ) in row(README, "[time to the goal on CartPole]")
    assert {each["runs"] for each in summary.values()} == {5}
    kept = shown_result("scaling")
    shares = {
        each["agents"]: each["ours"]["per_second"] / each["bare"]["per_second"]
        for each in kept["scaling"]
    }
    to_64 = [share for agents, share in shares.items() if agents <= 64]
    said = f"1 to 64 agents make {min(to_64):.2f} to {max(to_64):.2f} of the steps"
    assert said in row(README, "[more agents]")
    said = f"128 make {shares[128]:.2f}, 256 only {shares[256]:.2f}, fewer steps than 128 ("
    assert said in row(README, "[more agents]")
    goals = {row["agents"]: row["seconds"][0] for row in kept["goals"]}
    said = f"in {goals[1]:.0f} s by one agent, in {goals[64]:.0f} s by 64, on two cores, one seed"
    assert said in README.read_text()
    kills = kept["kills"]
    lost = kills["pushed"] - kills["inserted"]
    line = row(README, "[rows lost]")
    assert f"while {kills['killed']} of {kills['agents']} agents were killed" in line
    assert f"| {lost} of {kills['pushed']:,};" in line


def test_lines_of_an_algorithm_of_ones_own_are_counted() -> None:
    (file,) = [
        block
        for block in blocks(ROOT / "docs" / "your_own_algorithm.md")
        if block.file == "my_algorithm.py"
    ]
    lines = [line.strip() for line in file.text.splitlines()]
    code = [line for line in lines if line and not line.startswith("#")]
    assert f"| one file, {len(code)} lines of code;" in row(README, "[an algorithm of your own]")


def test_accounts_of_many_agents_are_exact() -> None:
    kept = shown_result("scaling")
    assert all(row["ours"]["exact"] for row in kept["scaling"])
    assert kept["kills"]["exact"]
    assert kept["kills"]["killed"] >= 4
