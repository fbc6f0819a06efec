"""The handler of the worker that is weighed: it imports nothing, so it weighs nothing."""


def work(payload: object) -> None:
    """Is done at once."""
