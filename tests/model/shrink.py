"""Makes a failing history smaller: parts are left out while it still fails."""

import time


def shrink(steps, fails, seconds=60):
    """`fails(steps)` is true if the server still differs from the model."""
    end = time.monotonic() + seconds
    size = max(1, len(steps) // 2)
    while size >= 1:
        at, smaller = 0, False
        while at < len(steps) and time.monotonic() < end:
            rest = steps[:at] + steps[at + size:]
            if fails(rest):
                steps, smaller = rest, True
            else:
                at += size
        if time.monotonic() >= end:
            break
        if size > 1:
            size //= 2
        elif not smaller:
            break
    return parts(steps, fails, end)


def parts(steps, fails, end):
    """Then single commands of packets."""
    for at in range(len(steps)):
        step = steps[at]
        number = 0
        while len(step.get("cmds", ())) > 1 and number < len(step["cmds"]) \
                and time.monotonic() < end:
            cmds = step["cmds"][:number] + step["cmds"][number + 1:]
            other = steps[:at] + [{**step, "cmds": cmds}] + steps[at + 1:]
            if fails(other):
                steps, step = other, other[at]
            else:
                number += 1
    return steps
