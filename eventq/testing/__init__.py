"""What users test queues with: the reference model, and what drives a queue against it.

* `model.Model` foretells what follows from each command, written the slow, obvious way.
* `adapter.Adapter` is the little that the harness needs of a queue.
* `pair.Pair` asks a queue and the model the same and compares everything after each command;
  `pair.drive` does so from a seeded source, tens of thousands of times, counts what fired, and
  tells the shortest way to a difference that is found in some hundreds of tries, within seconds.
* `machine.QueueMachine` is a state machine for hypothesis, which looks for differences in ways of
  its own, and longer for the shortest one. It alone needs hypothesis
  (`pip install eventq[testing]`); nothing else here does.
* `faults` is for what the log itself must withstand: a disk that fails at the nth call, what a
  power cut leaves, and every damage to its files.
* `recording.Recorder` records what several callers at once are answered, in processes or threads;
  `histories.explain` finds the one order of the log that explains it, or says what is a lie.

To hold a queue of your own against the model, write an adapter for it and hand it over:

    class MyAdapter:
        durable = False             # payloads are opaque objects, not JSON values
        id = "mine"                 # of the queue; the jitter of its waits follows from it

        def __init__(self, policy, clock):
            self.queue = MyQueue(policy, clock)

        def ask(self, do, arguments):
            # "enqueue", {"id": "a", "after": ["b"]}; "start", {"worker": "w1"}; "fail", ...
            # Raise the refusals of eventq. Answer with the task, the lease, a list or None, as
            # `facts.plain` gives them: dicts of the public fields.
            ...

        def events(self):           # what followed from the last command
            ...

        def look(self):             # everything that can be asked, as a `facts.Look`
            ...

        def check(self):            # whatever else should hold: raise AssertionError if not
            pass

        def shut(self):
            pass

    drive(1, 10_000, MyAdapter)     # a seeded source; the same seed asks the same

    class MyMachine(QueueMachine):  # hypothesis
        def make(self, policy, clock):
            return MyAdapter(policy, clock)

    TestMyQueue = MyMachine.TestCase

A queue that outlives its process adds `reopen`, `snapshot`, `last_line` and `crash`
(`adapter.DurableAdapter`), and is then closed, opened and crashed on the way, too. A difference is
an AssertionError that tells all that was asked before it.
"""

from eventq.testing.adapter import Adapter, DurableAdapter
from eventq.testing.facts import Look
from eventq.testing.histories import Call, explain
from eventq.testing.model import Model
from eventq.testing.pair import Fired, Pair, drive
from eventq.testing.recording import Recorder, Recording

__all__ = [
    "Adapter",
    "Call",
    "DurableAdapter",
    "Fired",
    "Look",
    "Model",
    "Pair",
    "Recorder",
    "Recording",
    "drive",
    "explain",
]
