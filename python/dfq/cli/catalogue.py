"""Every command with its summary, so that `dfq --help` need not import a single one."""

from __future__ import annotations

SECTIONS: dict[str, dict[str, str]] = {
    "Start": {
        "demo": "See a queue at work, in a folder of its own.",
        "init": "Make a queue and choose its policy.",
    },
    "Work": {
        "push": "Put tasks into a queue.",
        "worker": "Take tasks from a queue and run them.",
        "health": "Say when a worker last polled.",
        "service": "Keep a worker running, by systemd.",
    },
    "Look": {
        "stats": "Count the tasks of a queue.",
        "ls": "List tasks.",
        "show": "Show everything about one task.",
        "top": "Watch a queue live.",
        "doctor": "Look for trouble in a queue; change nothing.",
    },
    "Change": {
        "requeue": "Give failed tasks their attempts back.",
        "cancel": "Move pending tasks to failed, even while they run.",
        "bury": "Move tasks nobody is working on to failed.",
        "purge": "Delete tasks for good.",
        "pause": "Stop handing out tasks.",
        "resume": "Hand out tasks again.",
        "sweep": "Put right what crashes left behind.",
    },
    "Index": {
        "index": "Keep records under keys, as sorted files.",
        "compile": "Fold what waits into the shards of an index.",
    },
    "Files": {
        "usv": "Convert, check and look at USV files.",
    },
    "Shell": {
        "completion": "Print the completion script of a shell.",
    },
}

SUMMARIES = {name: text for section in SECTIONS.values() for name, text in section.items()}

EXIT_CODES: tuple[tuple[int, str], ...] = (
    (0, "done"),
    (1, "failed; for doctor, health and service status: something is wrong"),
    (2, "the command line can't be understood"),
    (3, "worker --once found no task"),
    (64, "no engine answers to this queue URL"),
    (65, "the input is wrong: a task, a line of a file, an id that exists"),
    (66, "there is no such task, queue, service or file"),
    (69, "the task is not in a state that allows this; or there is no systemd"),
    (70, "a bug in dfq"),
    (73, "init: the queue has a policy already; service: the name is taken"),
    (74, "the queue can't be reached or written; service: systemd refused"),
    (75, "try again later: a lock is held, a lease was lost"),
    (77, "the store refuses: credentials, permissions, bucket, region, clock or TLS"),
    (78, "the configuration, policy or handler is wrong, or the store is not safe to use"),
    (130, "stopped by Ctrl-C"),
    (141, "whoever read the output went away"),
    (143, "a worker was stopped at once by a second SIGTERM"),
)
