"""What a trace said, held against what is known from outside of it. Pure: a selftest gives it results."""

from dataclasses import dataclass

# Causes that come from outside of the server, its clients and its upstreams.
OF_THE_MACHINE = ("background", "irq", "softirq", "hypervisor", "slow_cpu")
# A check that fails decides nothing where they make this part of the tail.
SPOILS = 0.1


@dataclass(frozen=True)
class Check:
    """One statement: whether it holds, with the figures on both sides."""

    what: str
    holds: bool
    figures: str


def first_cause(result):
    """The cause of the first finding that is about one."""
    findings = (result.get("explanation") or {}).get("findings", ())
    return next((finding for finding in findings if finding.get("cause")), None)


def whole(result, cause):
    """All of a cause, without its culprits."""
    return next((each for each in result["causes"] if each["cause"] == cause and each["culprit"] is None), None)


def chief(result, cause):
    """The culprit with most of a cause above p99."""
    named = [each for each in result["causes"] if each["cause"] == cause and each["culprit"]]
    return max(named, key=above_p99, default={}).get("culprit")


def quantile(distribution, q):
    """The quantile in nanoseconds; `None` where the sample does not support it."""
    return next((each["value"] for each in distribution["quantiles"] if each["q"] == q), None)


def spoiled(result, ours):
    """What the recording itself shows that the machine did to this attempt: events were lost, or a part of the tail is
    charged to something outside. `ours` are the names of programs that the test has started: what they do is not the
    machine's doing."""
    if lost := result["matching"]["lost_events"]:
        return f"the probe lost {lost:,} events: something else had the CPUs"
    # what the probe did not see may be any of them, where it was blind
    blind = ("unobserved",) if result["matching"]["blind_ns"] else ()
    outside = [each for each in result["causes"] if each["cause"] in OF_THE_MACHINE + blind]
    wholes = [each for each in outside if each["culprit"] is None]
    own = [each for each in outside if is_ours(each["culprit"] or {}, ours)]
    share = sum(map(above_p99, wholes)) - sum(map(above_p99, own))
    if share < SPOILS:
        return None
    largest = max(wholes, key=above_p99)["cause"]
    who = (chief(result, largest) or {}).get("name", "unknown")
    return f"{share:.0%} of the excess above p99 is the machine's, chiefly {largest} ({who})"


def is_ours(culprit, ours):
    """Whether it is a thread of the server, or of a program that the test has started."""
    return culprit.get("kind") == "own_thread" or culprit.get("name") in ours


def above_p99(share):
    """Its part of the excess above p99."""
    return share["excess_share_above_p99"]["value"]


def named_first(result, causes, culprit):
    """The first finding names one of these causes, and `culprit` (a test of the culprit in JSON) is true of its
    chief culprit."""
    found = first_cause(result)
    if not found:
        said = [finding["text"] for finding in (result.get("explanation") or {}).get("findings", ())]
        return Check(f"the first cause is {' or '.join(causes)}", False, f"no finding has a cause; they are {said}")
    who = chief(result, found["cause"])
    holds = found["cause"] in causes and culprit(who)
    what = f"the first cause is {' or '.join(causes)}, and its culprit is right"
    return Check(what, holds, f"{found['text']} (culprit {who})")


def near(what, here, outside, tolerance, unit="ms"):
    """Both times, in nanoseconds, agree to this share of the one from outside."""
    if here is None or outside is None:
        return Check(what, False, f"trace {here}, outside {outside}: one is not known")
    scale = {"ms": 1e6, "us": 1e3, "s": 1e9}[unit]
    holds = abs(here - outside) <= tolerance * outside
    figures = f"trace {here / scale:.4g} {unit}, outside {outside / scale:.4g} {unit} (may differ by {tolerance:.0%})"
    return Check(what, holds, figures)


def within(what, here, least, most):
    """A number lies in these limits, which are part of it."""
    return Check(what, least <= here <= most, f"trace {here:,.4g}, outside {least:,.4g} to {most:,.4g}")


def every_request(result, client):
    """The trace has every request that the client sent while it was recorded."""
    responses, sent = result["matching"]["responses"], client["requests"]
    return Check("every request of the client is in the trace", responses == sent, f"trace {responses:,}, client {sent:,}")


def as_the_client_saw_it(result, client, least=0.6):
    """The mean sojourn is that of the client's own clock without the way there and back, and without what the client waited
    for its own CPU: it is not longer, and where a server is slow, that is little of it. A mean exists for any number of
    requests, and the slow ones weigh in it."""
    here, there = result["measured"]["sojourn"]["mean"], client["mean"]
    holds = least * there <= here <= 1.02 * there
    figures = f"trace {here / 1e3:.1f} us, client {there / 1e3:.1f} us"
    return Check("the mean sojourn is what the client saw", holds, figures)
