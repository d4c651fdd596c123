"""How a target's library is reached: a process of its own with a clean environment, or this one.

``session`` has both kinds of session, ``pipes`` what lies between a parent and its child.
"""

from probe.launch.session import (
    PASSED,
    TIME_LIMIT,
    WORKER,
    Answer,
    AnySession,
    Arrays,
    InlineSession,
    Session,
    environment,
    library_variables,
    open_session,
)

__all__ = ["PASSED", "TIME_LIMIT", "WORKER", "Answer", "AnySession", "Arrays"]
__all__ += ["InlineSession", "Session", "environment", "library_variables", "open_session"]
