"""One loop for all questions: what is lost starts again, what fails is stored, the rest goes on."""

from __future__ import annotations

from probe import Store, Target, load
from probe.case.errors import NotASum, TargetError
from probe.sweep.campaign import Campaign
from probe.targets.launch import InlineSession


class Echo(Campaign):
    """Questions are words; some of them are more than a target can take."""

    def ask(self, part, question):
        if question == "crash":
            part.session.close()
            raise TargetError(part.target.text, "crash", "its process ended")
        if question == "no sum":
            raise NotASum("its answers contradict each other")
        assert part.session.alive
        self.tally.found += 1

    def place(self, question):
        return {"vary": "length", "at": len(question)}


def test_what_fails_is_a_row_and_the_rest_goes_on(tmp_path):
    told, words = [], ["crash", "a", "no sum", "b"]
    with Store(tmp_path) as store:
        job = Echo(store, "a test", lambda *now: told.append(now), InlineSession)
        tally = job.run([(Target("reference"), words)])
    rows = load(tmp_path).failures
    assert rows.kind.tolist() == ["crash", "not-a-sum"] and rows["at"].tolist() == [5, 6]
    assert tally.found == 2 and len(tally.failures["reference"]) == 2 and not tally.interrupted
    assert told[-1] == (4, 4, "reference") and len(job.parts["reference"].failures) == 2
    assert len(load(tmp_path).runs) == 1
