"""The objects of `--json` as typed classes. Written by generate_records.py from the JSON Schemas: do not edit.

Times are integer nanoseconds where a name ends in `_ns`. A part that a result does not have is `None`.
"""

from __future__ import annotations

from typing import Literal

from taillab._record import DistributionRecord, Record

SCHEMA_VERSION = 1
"""Version of the shapes below: `schema_version` of a result."""


ArrivalsReference = Literal["process", "schedule"]
"""What the sends of a run are compared with."""


AssertionOutcome = Literal["pass", "fail", "undecided"]
"""Whether a limit is held."""


Cause = Literal[
    "stack_rx",
    "queue",
    "service",
    "stack_tx",
    "background",
    "irq",
    "softirq",
    "own_threads",
    "order",
    "imbalance",
    "idle_exit",
    "wakeup",
    "blocked_lock",
    "blocked_fault",
    "blocked_io",
    "blocked_other",
    "upstream",
    "client",
    "pause",
    "throttled",
    "slow_service",
    "slow_cpu",
    "retransmit",
    "hypervisor",
    "unobserved",
    "unexplained",
]
"""What a nanosecond between T1 and T6 was spent on."""


ClaimName = Literal["p50", "p90", "p99", "p99.9", "p99.99", "p99.999", "ideal", "causes", "forecasts"]
"""The claims of a result."""


Class = Literal["good", "bad", "ugly"]
"""How bad a latency is, by the paper: good up to 1 µs, bad up to 100 µs, ugly beyond."""


ClientKind = Literal["independent", "pooled"]
"""Who the requests come from."""


Closing = Literal["server", "client", "reset"]
"""Who closes the connection that a request had to itself."""


CutReason = Literal[
    "generator_late",
    "generator_stalled",
    "generator_not_scheduled",
    "capacity_check",
]
"""Why a stretch was not on schedule."""


DecidedBy = Literal["measured", "adjusted", "typical"]
"""The list of ratios that decided."""


FixOutcome = Literal["kept", "reverted", "inconclusive", "unavailable"]
"""What became of a mitigation."""


LimitedBy = Literal["server", "others", "client", "waits"]
"""What kept a peak from being higher."""


Link = Literal["loopback", "veth", "target"]
"""What is between client and server."""


LoopKind = Literal["user", "kernel", "masked"]
"""Where the loop runs."""


Mode = Literal["open_loop", "sweep", "search", "closed_loop", "ping_pong"]
"""How requests were sent."""


Monotonic = int
"""An instant of the host's `CLOCK_MONOTONIC`, in nanoseconds since boot. This is the clock of
`bpf_ktime_get_ns` and of `clock_gettime(CLOCK_MONOTONIC)`, so kernel stamps and the generator's stamps on
one host can be compared. Instants of two hosts cannot.
"""


Nanos = int
"""A length of time in integer nanoseconds; never negative."""


NoScaling = Literal["peak_is_not_of_server", "one_is_not_known"]
"""Why it is not known what several workers reach together."""


NoiseKind = Literal[
    "tick",
    "interrupt",
    "softirq",
    "thread",
    "ipi",
    "page_fault",
    "rt_throttling",
    "quota",
    "hypervisor",
    "unexplained",
]
"""A kind of thing that takes time from a thread."""


ReadStyle = Literal["single", "double"]
"""How a loop reads the clock."""


RttEnd = Literal["client", "server"]
"""One end of a round trip."""


RttPart = Literal[
    "client_stack",
    "client_wake_up",
    "client_disturbance",
    "server_stack",
    "server_wake_up",
    "application",
    "server_disturbance",
]
"""What a moment of a round trip was spent on. The parts are exclusive, and the parts of a round trip add up
to its length.
"""


ServiceTimeSource = Literal[
    "calibrated",
    "given",
    "virtual_wait",
    "busy_periods",
    "busy_time",
    "as_fast_as_measured",
    "unknown",
]
"""How the service time t was found."""


Standing = Literal["measured", "substituted", "unavailable"]
"""How a row came about."""


ThreadActivity = Literal[
    "on_cpu",
    "waiting_for_cpu",
    "upstream",
    "sockets",
    "lock",
    "page_fault",
    "storage",
    "timer",
    "stopped",
    "other_call",
    "unknown",
]
"""What a thread of the server does."""


Unit = Literal["ns"]
"""The unit of a `Distribution`'s times."""


WorkersSource = Literal["known", "given", "seen"]
"""How the number of the ideal queue's workers was found."""


XdpAttachment = Literal["native", "generic"]
"""Where the kernel passes a packet to an XDP program, the earlier place first."""


class Above(Record):
    """How often per second something was longer than some lengths."""

    us_100_per_s: float
    """Longer than 100 µs, per second."""
    us_10_per_s: float
    """Longer than 10 µs, per second."""
    us_1_per_s: float
    """Longer than 1 µs, per second."""


class Activity(Record):
    """What one CPU did for a while during a slow request."""

    cpu: int
    """Which CPU."""
    from_ns: Nanos
    """When it began, in nanoseconds after T1."""
    lasted_ns: Nanos
    """How long it lasted."""
    who: Culprit | None
    """The thread, interrupt or softirq; `null` if the CPU was idle."""


class ApplicationAt(Record):
    """What the thread that served the requests around a percentile did between T4 and T5."""

    mean_ns: float
    """Their mean T4 to T5, in nanoseconds."""
    parts: list[ApplicationPart]
    """What it consists of, without what did not occur; sums to the mean."""
    q: float
    """The percentile of the sojourn."""
    requests: int
    """The requests with both stamps and a known thread."""


class ApplicationPart(Record):
    """A part of the time between T4 and T5."""

    doing: ThreadActivity
    """What the thread did."""
    mean_ns: float
    """For how long on average, in nanoseconds."""


class ArrivalsVerdict(Record):
    """The arrival process as sent, compared with the one wanted."""

    ad_a2: float
    """Anderson–Darling statistic A² of the gaps against the wanted distribution."""
    ad_critical: float
    """The A² that 5 % of true samples exceed."""
    cv: float
    """Coefficient of variation of the gaps (Poisson: 1)."""
    dead_time_count: int | None
    """Number of sends that were due together with the one before: the dead time's sample."""
    dead_time_due_within_ns: Nanos | None
    """Two sends count as due together if the second was due within this time of the first."""
    dead_time_hi_ns: Nanos | None
    """Upper end of the dead time's interval; absent where the sample has none."""
    dead_time_lo_ns: Nanos | None
    """Lower end of the dead time's interval of 95 %."""
    dead_time_ns: Nanos | None
    """The dead time: the median time between two sends that were due together."""
    idc: list[DispersionAt]
    """Index of dispersion of counts (Poisson: 1) at several windows, the shortest first."""
    ks_critical: float
    """The distance that 5 % of true samples of this size exceed."""
    ks_d: float
    """Kolmogorov–Smirnov distance of the gaps sent from the wanted distribution."""
    passed: bool
    """The gaps pass Kolmogorov–Smirnov at 5 %."""
    process: str
    """The process wanted: `poisson`."""
    reference: ArrivalsReference
    """What the sends are compared with."""


class Assertion(Record):
    """A limit, and whether the result is within it."""

    assertion: str
    """The limit: `p99.9<=2ms`."""
    outcome: AssertionOutcome
    """Whether it is held."""
    text: str
    """One line for people: the figure with its interval, or why nothing is decided."""


class Band(Record):
    """What the excess of the requests between two percentiles of the sojourn consists of."""

    from_q: float
    """From this quantile of the sojourn …"""
    mean_ideal_ns: float
    """Their mean ideal sojourn, in nanoseconds."""
    mean_sojourn_ns: float
    """Their mean sojourn, in nanoseconds."""
    parts: list[BandPart]
    """Each cause's part of the mean excess; they sum to mean sojourn − mean ideal."""
    requests: int
    """Requests in the band."""
    to_q: float
    """… to this one (1: the slowest)."""


class BandPart(Record):
    """One cause's part of a band."""

    cause: Cause
    """The cause."""
    mean_excess_ns: float
    """Its mean excess per request of the band, in nanoseconds; negative where the server beat the ideal in
    it.
    """
    share: Share
    """Its share of the band's excess."""


class BudgetRow(Record):
    """One component."""

    ccdf: list[tuple[int, float]]
    """(nanoseconds, share that took longer), for figures."""
    class_of_median: Class | None
    """The class of the median."""
    class_of_tail: Class | None
    """The class of the maximum."""
    component: str
    """The paper's name for it."""
    how: str
    """What was measured; for a substituted row, the substitute; for an unavailable one, why."""
    latency: Distribution | None
    """The latency; `null` where it is not available."""
    paper: PaperFigures | None
    """What the paper found in 2016."""
    parameters: list[tuple[str, str]]
    """Name and value of each parameter of the measurement."""
    standing: Standing
    """Whether it is what the paper measured."""


class BurstRoot(Record):
    """Bursts of slow requests that began with the same thing."""

    bursts: int
    """How many bursts."""
    cause: Cause
    """The cause of most of their excess."""
    culprit: Culprit | None
    """Who or what."""
    longest_ns: Nanos
    """The same in the burst with most of it."""
    share: Share
    """Their share of all bursts, with its interval over bursts."""
    shortest_ns: Nanos
    """How long it delayed the request that it delayed most, in the burst with the least of it."""


class BusyPeriods(Record):
    """The service time as the server's busy periods show it: what happened on its CPUs between a response and
    the next one, where the next request already waited at its socket.
    """

    after_response_ns: Nanos
    """The part of that which comes after the response has left: it is received on the same CPU, as on a
    virtual network, or the client acknowledges it. The next request waits for it, the request itself does
    not.
    """
    hi_ns: Nanos
    """Upper end of its interval."""
    left_out: int
    """Of these, the ones that were left out because the server's thread seemed to run for 100 µs without any
    event: the hypervisor may have stopped the CPU. The interval reaches to the mean with them.
    """
    lo_ns: Nanos
    """Lower end of its interval of 95 %."""
    receive_ns: Nanos
    """The part of it that is the work of the network's receive softirq."""
    seen: int
    """Times that a request waited while a response left."""
    service_time_ns: Nanos
    """The mean cost of a request, with the probe: the server's own time on the CPU and the receive work."""


class BusyPeriodsOfCpu(Record):
    """The service time as the busy periods of one CPU show it."""

    after_response_ns: Nanos
    """The part of that which comes after the response has left: it is received on the same CPU, as on a
    virtual network, or the client acknowledges it. The next request waits for it, the request itself does
    not.
    """
    cpu: int
    """The CPU."""
    hi_ns: Nanos
    """Upper end of its interval."""
    left_out: int
    """Of these, the ones that were left out because the server's thread seemed to run for 100 µs without any
    event: the hypervisor may have stopped the CPU. The interval reaches to the mean with them.
    """
    lo_ns: Nanos
    """Lower end of its interval of 95 %."""
    receive_ns: Nanos
    """The part of it that is the work of the network's receive softirq."""
    seen: int
    """Times that a request waited while a response left."""
    service_time_ns: Nanos
    """The mean cost of a request, with the probe: the server's own time on the CPU and the receive work."""


class Calibration(Record):
    """The peak of the server, and how it was found."""

    blocks: int
    """Blocks measured."""
    limited_by: LimitedBy
    """What kept the peak from being higher."""
    outstanding: int
    """Requests that were kept outstanding: as given, or the number with the highest throughput."""
    peak_hi_per_s: float
    """Upper end of its interval."""
    peak_lo_per_s: float
    """Lower end of its interval."""
    peak_per_s: float
    """Peak throughput of the server without the probe: median over the blocks."""
    scaling: Scaling | None
    """What several workers reached of as many times what one reaches by itself. Absent where there is only
    one.
    """
    server_cpu_busy_share: float
    """Share of the server's CPUs that was not idle at the peak."""


class Capacity(Record):
    """The server's peak, measured with a closed loop before the load."""

    blocks: int
    """Blocks measured."""
    peak_hi_per_s: float | None
    """Upper end of its interval; `null` with too few blocks."""
    peak_lo_per_s: float | None
    """Lower end of its interval; `null` with too few blocks."""
    peak_per_s: float
    """Requests answered per second at the peak: median over the blocks."""


class CauseShare(Record):
    """One cause, or one culprit of it, over the whole measurement."""

    cause: Cause
    """The cause."""
    culprit: Culprit | None
    """Who or what; `null` for the cause as a whole. The causes as wholes come first and add up to all excess;
    their culprits follow, each a part of its cause.
    """
    events: int
    """How often it happened while a request waited: throttles, stays of a thread on the core, sleeps, slow
    services …, each counted once, however many requests it delayed. 0 for causes without a beginning and
    an end, such as receiving.
    """
    excess_ns: Nanos
    """The excess itself, summed over the requests."""
    excess_share_above_p99: Share
    """Its share of the excess of the requests above p99 of the sojourn."""
    long_events: LongEvents | None
    """The long ones, if few events take most of the time; `null` where no event stands out."""
    longest_event_ns: Nanos | None
    """The longest of them; `null` without events."""
    mean_event_ns: float
    """Mean length of these events themselves, in nanoseconds."""
    median_event_ns: Nanos | None
    """Their median length, to 1.6 %; `null` without events."""
    requests: int
    """Requests that it delayed."""
    requests_per_event: float
    """Requests that an event delays on average: the amplification."""
    share: Share
    """Its share of all excess over the ideal."""


class Claim(Record):
    """Something that a result states, which can hold even where the rest does not."""

    because: list[str] | None
    """The keys of the reasons and warnings that withdraw it; empty where it holds."""
    claim: ClaimName
    """Which one."""
    valid: bool
    """It holds. Otherwise it is withdrawn: no output has it."""


class ClientCost(Record):
    """What one request costs the client."""

    busy_share: float
    """Share of the measurement in which the client was not waiting for its next send."""
    cpu_ns_per_request: Nanos
    """CPU time of the client thread in sending and receiving, idle spinning left out."""


class ClientsSummary(Record):
    """The clients of a load."""

    connecting: ConnectingSummary | None
    """The connections, where each request has one of its own; absent where connections are kept."""
    connections: int
    """Connections, or ports of the clients; with a reserve, this included. If each request has a connection
    of its own, the most that are open at once.
    """
    kind: ClientKind
    """Who the requests come from."""
    pipeline: int | None
    """The most requests under way on a connection at once; absent where there is no limit."""
    wait: Distribution | None
    """How long the requests waited for their connections: a part of the response time, between the lateness
    and the service time. Zero for those that did not wait; absent where none did.
    """
    waited: int
    """Requests that waited in their client, because their connection was busy or being opened."""
    waited_share: float
    """Their share of all requests."""


class ClosedLoop(Record):
    """What was measured without a schedule: each request is sent when an answer has come. It says what the
    server can do, not how long a user waits.
    """

    answered_rate_per_s: float
    """Answers per second."""
    client: ClientCost
    """The client's own cost."""
    duration_ns: Nanos
    """Length of the measurement."""
    errors: LoadErrors
    """What went wrong, by kind."""
    outstanding: int
    """Requests kept in flight, all connections together."""
    requests: int
    """Requests sent in the measurement."""
    service_time: Distribution
    """From the send to the response."""


class Clustering(Record):
    """Whether slow requests come together."""

    autocorrelation: list[tuple[int, float]]
    """Correlation of "the n-th request is slow" with "the (n + lag)-th is", for each lag."""
    episodes: int
    """Episodes: slow requests that are neighbours in the order of T1, or were in the server at once."""
    in_runs_share: float
    """Share of the slow requests that come in runs of two or more."""
    mean_episode_requests: float
    """Mean number of requests in an episode."""
    q: float
    """Slow means above this quantile of the sojourn."""


class CommonStart(Record):
    """The start that several clients of one experiment have in common, on the clock of this one."""

    client: int
    """Number of this client, from 0."""
    clients: int
    """Clients of the experiment."""
    error_ns: Nanos
    """How far the start may be off that of the others, in nanoseconds: the error of the clocks' offset, and
    that of reading two clocks of this host at once.
    """
    first_send_late_ns: Nanos | None
    """From the planned instant of the first request until it was sent, in nanoseconds. Absent without a
    schedule.
    """
    monotonic_ns: int
    """The planned start by CLOCK_MONOTONIC of this client's host, nanoseconds since boot."""


class ConnectingSummary(Record):
    """The connections of a load in which each request has one of its own."""

    closing: Closing
    """Who closes them."""
    connected: int
    """Connections that came up, and on which a request was sent."""
    failed: int
    """Connections that the kernel could not open: no port, no route. Their requests are among the send
    errors.
    """
    refused: int
    """Connections that the server's host refused: nothing listened there. Their requests are among the send
    errors.
    """
    time: Distribution
    """From the SYN until the connection was up and the request was sent: a part of the response time, between
    the wait for a connection and the service time. Connections that never came up count as longer than all
    others.
    """
    timed_out: int
    """Connections that were not up within the time-out. Their requests are among the time-outs."""


class CpuTaken(Record):
    """What took the server's CPUs in an overload, as shares of their time. The rest of it they were idle."""

    busy_ns_per_request: float
    """Time of the server's threads and of the receive softirq per answered request, in nanoseconds."""
    interrupts_share: float
    """Interrupts and softirqs, without the network's receive softirq."""
    others: list[TakenBy]
    """Those of them that took most, by name, the first first."""
    others_share: float
    """Threads of other programs."""
    receive_share: float
    """The network's receive softirq."""
    server_share: float
    """The server's threads."""
    stalled_share: float
    """They stood still: the hypervisor ran something else."""


class Culprit(Record):
    """Who or what did it."""

    kind: Literal[
        "thread",
        "own_thread",
        "interrupt",
        "softirq",
        "system_call",
        "worker",
        "runtime",
        "sending",
        "upstream",
        "shared_cpu",
        "idle_state",
        "chain",
    ]
    name: str | None
    """The name (`comm`) of the thread for which the worker waited."""
    pid: int | None
    """Its process, where known."""
    process: str | None
    """The name of its process (that of its main thread), where known and another one: `rustc`."""
    tid: int | None
    """The thread itself; `null` where several of the same name and process are meant."""
    number: int | None
    """The number in `/proc/interrupts`, for a device's."""
    task: str | None
    """What for: `garbage collection`."""
    threads: int | None
    """How many threads with requests shared it."""
    what: str | None
    """In a few words: `a delayed ACK (Nagle's algorithm)`."""
    servers: list[str] | None
    """Address and port of each, with the program if it runs on the same machine: `127.0.0.1:11211
    (memcached)`. If there are several, it is not known which of them was waited for.
    """
    cpu: int | None
    """Its number."""
    state: int | None
    """Its index."""
    end: str | None
    """Who or what is at the end of the chain, as it is called elsewhere: `pread64`, `dpkg (pid 30122)`;
    `null` where the cause says it all.
    """


class CutSummary(Record):
    """Stretches in which the load was not what it should have been, by the generator's own clock and
    schedule. What disturbed only the server is not among them.
    """

    by_reason: list[CutsForReason]
    """The cuts by reason, the longest first."""
    length_ns: Nanos
    """The length of all cuts together."""
    requests: int
    """Requests that are therefore left out of `scheduled`."""
    share: float
    """Share of the measurement's time that was cut."""
    unsettled: list[UnsettledAt]
    """What is missing because a cut lasts until the server is idle: by percentile, in ascending order."""


class CutsForReason(Record):
    """What was cut for one reason."""

    length_ns: Nanos
    """Their length in all, with the time in which the server worked off the backlog."""
    requests: int
    """Requests that were left out."""
    times: int
    """Number of cuts."""
    who: str
    """Who did it, as far as that is known: `stress (pid 77) on CPU 1`."""
    why: CutReason
    """What was wrong."""


class DispersionAt(Record):
    """Variance over mean of the number of sends in windows of one length."""

    expected: float | None
    """What it should be: 1 for Poisson, else that of the schedule; `null` where `value` is."""
    value: float | None
    """Variance ÷ mean; `null` with fewer than ten windows."""
    window_ns: Nanos
    """The window's length."""


class Distribution(DistributionRecord):
    """A latency distribution; every time is in integer nanoseconds."""

    count: int
    """Observations."""
    max: Nanos | None
    """The largest observation."""
    mean: float | None
    """Arithmetic mean in nanoseconds; `null` for an empty sample."""
    min: Nanos | None
    """The smallest observation."""
    quantiles: list[Quantile]
    """At least one for each of `REPORTED_QUANTILES`."""
    unanswered: int | None
    """Observations that are only known to be longer than the others: requests without an answer. They count
    in the quantiles, and a quantile that falls among them has no value. `count`, `mean`, `min` and `max`
    leave them out. Absent where there is none.
    """
    unit: Unit
    """Always `ns`."""


class DividedRatio(Record):
    """Measured ÷ ideal at a percentile, and what makes it more than 1."""

    parts: list[RatioPart]
    """What it consists of besides the ideal, the largest part first; the parts sum to the ratio − 1."""
    q: float
    """The quantile."""
    ratio: float
    """This quantile of the measured sojourn ÷ that of the ideal one; of `ideal.own_work` where that is the
    base.
    """


class EarlierRow(Record):
    """A row of the earlier study (It's Time for Low Latency, 2011), with today's figures."""

    component: str
    """The name of the component."""
    delay_2011: str
    """One traversal in 2011."""
    round_trip_2011: str
    """Its part of a round trip in 2011."""
    round_trip_today: str
    """Its part of the median round trip through the large fat tree today."""
    source: str
    """Where today's figures come from."""
    today: str
    """One traversal today."""


class Effect(Record):
    """The effect of a mitigation, or the interaction of several."""

    at: list[RatioAt]
    """For one mitigation: the client's latency with it ÷ without it, as the geometric mean over all
    combinations of the others. For several: the factor by which the effect of one differs when the others
    are applied too; 1 when they do not interact.
    """
    of: list[str]
    """The mitigations whose effect or interaction this is."""


class Engine(Record):
    """How a result was calculated."""

    elapsed_ns: Nanos
    """How long it took."""
    isa: str
    """The vector instructions."""
    kernel: str
    """The kernel."""
    requests: int
    """Requests simulated, the discarded ones included."""
    requests_per_second: float
    """Requests in a second of real time."""
    threads: int
    """The threads."""


class Exact(Record):
    """What theory says."""

    mean: float
    """The mean sojourn."""
    model: str
    """The system in Kendall's notation."""
    quantiles: list[ExactQuantile]
    """Quantiles of the sojourn; `null` where only moments are known."""
    source: str
    """Where the law comes from."""
    unit: Literal["ns"]
    """Always `ns`."""


class ExactQuantile(Record):
    """One exact quantile."""

    q: float
    """The probability."""
    value: Nanos | None
    """The quantile."""


class Exclusions(Record):
    """What `Matching` does not count."""

    early: int
    """Requests to connections that were open before the recording, from when it was not yet known what these
    owed: at most fourteen each.
    """
    elsewhere: int
    """Requests over TCP to the server's port that none of its sockets received: packets that pass through
    this machine, or that nobody accepts.
    """
    forgotten: int
    """Connections and threads that were forgotten while they were in use, since there were too many at once.
    What was under way there counts as unanswered.
    """
    from_before: int
    """Responses to requests from before the recording."""
    other_processes: int
    """Requests that another process received, which shares the server's port (SO_REUSEPORT)."""
    parts: int
    """Packets over TCP that only began a request: its client sends requests in several packets and waits for
    the responses, as far as the server's connections show. Counted without a framing only.
    """
    unasked: int
    """Connections on which the server sends without being asked (subscribers, replicas, streams of events),
    or goes on for longer than is waited for. Nothing counts that happened there from then on.
    """
    unasked_ports: list[int]
    """The client's ports of the first of them."""


class Explanation(Record):
    """Everything that explains a measured distribution besides its causes."""

    application: list[ApplicationAt]
    """What the server did between T4 and T5 of the requests around p50, p99 and p99.9."""
    around: list[Band]
    """The same of the requests around p50, p99 and p99.9 of the sojourn: those that took about as long."""
    bands: list[Band]
    """The composition of the excess, from the fast requests to the slowest."""
    burst_roots: list[BurstRoot]
    """What these bursts began with, the most frequent first."""
    bursts: int
    """How many bursts of slow requests there were, where their roots are known."""
    clustering: Clustering | None
    """Bursts or single events; `null` with too few slow requests."""
    curves: list[NamedCurve]
    """Curves to draw."""
    fan_out: list[FanOut]
    """The latency of the slowest of many servers."""
    findings: list[Finding]
    """What to tell a person, the most important first."""
    heat_map: HeatMap
    """Latency over time."""
    hypervisor: TakenByHypervisor | None
    """What the hypervisor took of the server's CPUs; `null` where it was not seen to take anything."""
    inversions: Inversions
    """Who overtook whom."""
    limits: list[str]
    """What was recorded and what could not be, in words: the kinds of disturbance that were off or refused,
    and what therefore is charged to `unexplained`.
    """
    sleeping: Sleeping | None
    """How often workers slept, and what waking them took; `null` where none was seen to be woken."""
    slow_requests: SlowRequests | None
    """Requests that themselves take far longer than the others; `null` where there are none."""
    slowest: list[SlowRequest]
    """The slowest requests, the slowest first."""
    upstreams: list[UpstreamAnswers] | None
    """The servers that this one asks, the one that took longest in all first; none where that was not
    stamped.
    """
    workers: list[WorkerShare]
    """The workers."""


class Factorial(Record):
    """What `--factorial` measured: the chosen mitigations in all combinations."""

    cells: list[FactorialCell]
    """Every combination, the one without any of them first."""
    effects: list[Effect]
    """The single mitigations' effects, then how pairs of them interact, and so on."""
    mitigations: list[str]
    """The names of the mitigations."""
    rounds: int
    """Rounds, each with a block of every combination, in an order drawn at random."""


class FactorialCell(Record):
    """A combination of mitigations."""

    at: list[LatencyAt]
    """The client's latency with exactly these, at each quantile."""
    with_: list[str]
    """The mitigations that are applied."""


class FanOut(Record):
    """The latency of a user who waits for the slowest of several such servers."""

    p50_ns: Nanos | None
    """Median over users; `null` where the sample does not support it."""
    p99_ns: Nanos | None
    """99th percentile over users."""
    servers: int
    """Servers asked at once."""


class Fanout(Record):
    """The largest of `parts` requests that are sent together."""

    fork_join: Distribution | None
    """All parts at the same instants, each to a separate worker: fork and join, simulated."""
    independent: list[Quantile]
    """Each part to a separate system: quantiles of the largest of independent sojourns."""
    parts: int
    """How many."""


class Finding(Record):
    """A sentence with its evidence."""

    advice: str | None
    """What to do next: a command, or what to measure."""
    cause: Cause | None
    """The cause that it is about."""
    inconclusive: bool
    """The evidence does not decide."""
    key: str | None
    """A name for scripts, where it has one: `sleeping_and_waking`, or the key of the verdict's warning about
    the same thing (`overload`). What is about a cause is known by that.
    """
    text: str
    """What was found, one or a few sentences, with figures and units."""


class FitPoint(Record):
    """One percentile, measured and replayed."""

    error: float
    """replayed ÷ measured − 1."""
    measured_ns: Nanos
    """As measured."""
    q: float
    """The quantile."""
    replayed_ns: Nanos
    """As replayed."""


class Fix(Record):
    """A mitigation that was tried on the server, in pairs of blocks without and with it."""

    adjusted: list[RatioAt] | None
    """The same ratio for the server's sojourns, after the replay has taken out what others did to its CPUs,
    except what this mitigation treats; empty where the replay does not reproduce enough pairs.
    """
    by_pair: list[PairsAt] | None
    """The client's latency in the blocks of each pair."""
    decided_at: float | None
    """The quantile that decided: the highest that the blocks support; `null` where none did."""
    decided_by: DecidedBy | None
    """Which list of ratios decided at that quantile; `null` where none did."""
    description: str
    """What it changes, in words."""
    measured: list[RatioAt]
    """The latency that the client measured with it ÷ without it; empty where it was not tried."""
    mitigation: str
    """Its name, as `taillab tune` takes it; `control` where nothing was changed."""
    not_kept: NotKept | None
    """The part of a winner that `--keep` cannot leave applied; absent where all of it stays, or nothing was
    to be kept.
    """
    outcome: FixOutcome
    """What became of it."""
    pairs: int
    """Number of pairs of blocks."""
    predicted: list[RatioAt]
    """The forecast: latency with it ÷ latency without it, at the quantiles for which the replay has one.
    After each winner it is computed again from the blocks that were measured with all winners.
    """
    reason: str
    """Why, in a sentence."""
    tail: TailAt | None
    """The client's latency at the quantile that decided, without and with it."""
    throughput: Ratio | None
    """Peak throughput with it ÷ without it; only for mitigations that were kept."""
    typical: list[RatioAt] | None
    """The latency that the client measured, with it ÷ without it, in a typical pair: the median over the
    pairs, with the interval of the sign test. Bursts of disturbance in a few blocks do not move it.
    """


class Floor(Record):
    """The same client and load against a responder that does nothing."""

    closed_loop: ClosedLoop | None
    """The result with the same closed loop."""
    load: LoadSummary | None
    """The result with the same schedule, where there is one."""
    responder: str
    """What answered, and where: `built-in null responder over udp on 127.0.0.1`."""


class Generator(Record):
    """The generator of `taillab load`: how it was set up, and what it measured besides one load by a
    schedule.
    """

    capacity: Capacity | None
    """The server's peak, where the load was given as a share of it."""
    closed_loop: ClosedLoop | None
    """What a closed loop or a ping-pong measured; `null` with a schedule."""
    connections: int
    """Connections, or ports of the client."""
    floor: Floor | None
    """The client's own floor."""
    floor_absent_because: str | None
    """Why there is no floor; set whenever `floor` is absent."""
    found: SearchResult | None
    """What a search found."""
    kept_awake: bool
    """All CPUs of the client's machine were kept out of idle states, the server's too if it is the same
    machine.
    """
    mode: Mode
    """How requests were sent."""
    protocol: str
    """The protocol: `memcached-ascii`, `http`, `redis`, `echo` …"""
    start: CommonStart | None
    """When the clients of a larger experiment began together. Absent where this one is alone."""
    steps: list[LoadStep]
    """The loads of a sweep or a search, in the order in which they were measured."""
    threads: int
    """Threads that sent and received."""
    transport: str
    """The transport: `udp`, `tcp` or `unix`."""
    wire: Wire | None
    """The load by the kernel's time stamps, where there are any."""
    wrong_answer: str | None
    """The first line of the first answer that was an error or not of this protocol. Absent where all were
    good.
    """


class HeatMap(Record):
    """How many requests were how slow, over time: the question of Figure 12 of Deconstructing the Tail at
    Scale Effect (bursts, or single events?).
    """

    column_ns: Nanos
    """The width of a column."""
    counts: list[list[int]]
    """Requests in each cell: one list of rows for each column, in order of time."""
    row_edges_ns: list[Nanos]
    """The lower edges of the rows, in order; the last row is open above."""


class Hook(Record):
    """The kernel hook behind a stamp."""

    hook: str
    """The hook attached, e.g. `tp_btf/netif_rx`."""
    lost_precision: str | None
    """What precision it lacks against the best hook known, if any."""
    stamp: str
    """`T1` … `T6`, or `switch`."""


class HypervisorSpell(Record):
    """A time in which the hypervisor took far more of the server's CPUs than usual."""

    from_ns: Nanos
    """When it began, since the start of the measurement."""
    length_ns: Nanos
    """How long it lasted."""
    share: float
    """The share of it that they took."""
    stalls: int
    """Stalls in it."""


class Ideal(Record):
    """The ideal sojourn."""

    by_service_time: list[IdealBounds] | None
    """Its percentiles with the ends of t's interval; empty where t has none. The intervals of `sojourn`
    contain them.
    """
    of_schedule: Distribution | None
    """The sojourn that the same queue would give the requests if each had arrived when it was due: a sender
    cannot send two requests at once, which takes bursts away. Its percentiles have no intervals of their
    own. Absent where the client was not ours, or there is no comparison.
    """
    own_work: OwnWork | None
    """The same queue if each request took as long as its own work did; absent where that was not seen, or
    there is no comparison.
    """
    sojourn: Distribution
    """The distribution."""
    utilization: float
    """Arrival rate at T1 × t ÷ c: the utilisation of the ideal server. That of the real one is
    `measured.utilization`.
    """
    virtual_workers: bool
    """The workers wait on timers, and there are more of them than CPUs."""
    withdrawn: Withdrawn | None
    """Why the measured server is not compared with the ideal one; then there is no ideal sojourn, no excess,
    no cause of it and no forecast. Absent where it is compared.
    """
    workers: int
    """Workers c of the ideal queue."""
    workers_source: WorkersSource
    """How c was found."""


class IdealBounds(Record):
    """A percentile of the ideal sojourn with the ends of t's interval."""

    hi_ns: Nanos
    """With the longest t."""
    lo_ns: Nanos
    """With the shortest t."""
    q: float
    """The percentile's probability."""


class Inversions(Record):
    """Requests that were overtaken, and by whom."""

    overtaken: int
    """Requests that a later one overtook."""
    pairs: list[tuple[int, int, int]]
    """The pairs of workers with the most (who overtook, who was overtaken, how often)."""
    share: float
    """Their share of all requests."""


class LatencyAt(Record):
    """A latency at one quantile."""

    ns: Nanos
    """The latency."""
    q: float
    """The quantile."""


class LoadErrors(Record):
    """Requests that did not end well, by kind. None of them leaves the record."""

    connections_closed: int
    """Connections that the server closed, in or between responses."""
    connections_reset: int
    """Connections that the server's host reset or refused."""
    lost_with_connection: int
    """Requests whose connection ended before their response."""
    malformed_responses: int
    """A response that could not be read as the protocol's."""
    misses: int
    """Gets that found nothing."""
    send_errors: int
    """The kernel refused the send."""
    server_errors: int
    """The server answered with an error."""
    timeouts: int
    """No response within the time-out."""
    unexpected_responses: int
    """A response that no request asked for, that came twice, or that two requests with one id could have
    asked for.
    """


class LoadSegment(Record):
    """What the server did in a part of a measurement whose rate followed its capacity."""

    busy_share: float
    """Share of the time of the server's CPUs that was used, without programs that gave way to the server."""
    capacity_per_s: float
    """Rate ÷ share: what the CPUs could answer."""
    from_ns: Nanos
    """When it began, since the start of the measurement."""
    length_ns: Nanos
    """How long it was."""
    rate_per_s: float
    """Requests answered per second."""


class LoadStep(Record):
    """One load of a sweep or of a search."""

    arrivals: ArrivalsVerdict
    """What the arrival process actually was."""
    client: ClientCost
    """The client's own cost."""
    clients: ClientsSummary | None
    """Who sent the requests, and how long these waited for their connections. Absent in older results."""
    duration_ns: Nanos
    """Length of the measurement."""
    errors: LoadErrors
    """What went wrong, by kind."""
    lateness: Distribution
    """From the intended send until the generator came to it: its own delay. Where a request then waited for
    its connection, that is in `clients`.
    """
    objective: ObjectiveAt | None
    """The step against the objective of the search; `null` in a sweep."""
    overloaded: bool
    """The server did not keep up: what was measured depends on how long it was measured."""
    partial: bool
    """The measurement ended before its time."""
    requests: int
    """Requests due in the measurement."""
    response_time: Distribution
    """From the intended send to the response: what a user waits."""
    segments: list[LoadSegment] | None
    """What the server did from one segment to the next, where the rate followed its capacity."""
    sent_rate_per_s: float
    """Requests sent per second of the measurement."""
    service_time: Distribution
    """From the actual send to the response."""
    target_rate_per_s: float
    """Rate of the schedule, requests per second."""
    target_utilization: float | None
    """Target rate × t ÷ workers, where the capacity is known."""
    verdict: Verdict
    """Whether the step can be believed."""


class LoadSummary(Record):
    """The load as planned and as the client saw it. In a run, the times are those of the requests of
    `scheduled`; rate, length and number are those of all requests.
    """

    arrivals: ArrivalsVerdict
    """What the arrival process actually was."""
    client: ClientCost
    """The client's own cost."""
    clients: ClientsSummary | None
    """Who sent the requests, and how long these waited for their connections. Absent in older results."""
    duration_ns: Nanos
    """Length of the measurement."""
    errors: LoadErrors
    """What went wrong, by kind."""
    lateness: Distribution
    """From the intended send until the generator came to it: its own delay. Where a request then waited for
    its connection, that is in `clients`.
    """
    requests: int
    """Requests due in the measurement."""
    response_time: Distribution
    """From the intended send to the response: what a user waits."""
    segments: list[LoadSegment] | None
    """What the server did from one segment to the next, where the rate followed its capacity."""
    sent_rate_per_s: float
    """Requests sent per second of the measurement."""
    service_time: Distribution
    """From the actual send to the response."""
    target_rate_per_s: float
    """Rate of the schedule, requests per second."""
    target_utilization: float | None
    """Target rate × t ÷ workers, where the capacity is known."""


class LongEvents(Record):
    """Events of a cause that are at least three times as long as its mean event, where these take at least
    half of the time of all.
    """

    events: int
    """How many there are."""
    mean_ns: float
    """Their mean length in nanoseconds, to 1.6 %."""


class LongGap(Record):
    """One long gap."""

    from_ns: Monotonic
    """When it began, in nanoseconds since boot."""
    length_ns: Nanos
    """How long it was, in nanoseconds."""
    parts: list[tuple[str, Nanos]]
    """The causes with their nanoseconds, the largest part first."""


class Matching(Record):
    """How well kernel events were matched with responses."""

    ambiguous: int
    """Responses that more than one request could have caused; none of these is matched."""
    blind_ns: Nanos
    """Time in which the probe was blind, summed over the server's CPUs."""
    blind_requests: int
    """Matched requests that overlap a blind window."""
    blind_windows: int
    """Blind windows found."""
    client_matched: int
    """The client's responses with T1 and T6."""
    client_responses: int
    """Responses that the client received, where the client is ours. They are counted without the probe, so
    they show what the probe missed.
    """
    complete: int
    """Responses with all six stamps in order. In sampled mode, only requests of the sample count."""
    hooks: list[Hook]
    """Which hook gave each stamp."""
    left_late: int
    """Requests of the sample that left after the end of their slice: from then on, what happened to them is
    not known.
    """
    lost_events: int
    """Events lost: ring buffer full, or a program skipped by recursion."""
    matched: int
    """Responses with T1 and T6."""
    missing_middle: list[int]
    """Matched requests that lack T2, T3, T4, T5, in this order, though these were to be recorded."""
    out_of_order: int
    """Matched requests whose stamps contradict each other (kept, not complete)."""
    responses: int
    """Responses that the server sent (T6 events in the measurement)."""
    slices: int
    """Slices with requests of the sample."""
    stamps: str
    """When T2 to T5 and disturbances were recorded: `all` the time, `sampled:1/N` (in slices, which take 1/N
    of the time) or `ends` (never).
    """
    unanswered: int
    """Requests whose packet came in and whose response never left."""
    unasked: int
    """Matched requests whose T2 to T5 were not to be recorded: those that came in outside of the slices, or
    at the edge of one.
    """


class Measured(Record):
    """The measured sojourn, T6 − T1."""

    busy_ns_per_request: float | None
    """The same busy time per request, in nanoseconds: what a request cost at this rate, where t is what it
    costs at the peak.
    """
    overload: Overload | None
    """The worst stretch in which work came faster than it was done, for a second or more. Absent where there
    was none.
    """
    server_cpu_busy_share: float | None
    """Share of the measurement that the server's CPUs were not idle."""
    sojourn: Distribution
    """The distribution."""
    utilization: float | None
    """Busy time of the workers ÷ (length × workers of the ideal queue), with the probe and at this rate;
    `null` where it was not recorded, or the workers are virtual.
    """


class ModelFit(Record):
    """How well the replayed queue reproduces what was measured."""

    good: bool
    """The fit is as good as that of a queue which is known (`good_fit_error`) at all points. Otherwise the
    intervals of the forecasts are wider by the error.
    """
    largest_borne: float
    """The largest error at which a percentile has forecasts (`MOST_FIT_ERROR`)."""
    largest_error: float
    """The largest relative error over the points."""
    model: str
    """The queue that was replayed: `1 worker, FIFO by T2, 3 kinds of absence`."""
    points: list[FitPoint]
    """The points, p50 … p99.9, as far as the sample supports them."""


class NamedCurve(Record):
    """A curve to compare with the measured one: points (x, P(sojourn ≥ x))."""

    name: str
    """`multi_queue_ideal`, `ideal_without_probe`, `replayed`, or the change of a `Prediction`."""
    points: list[tuple[Nanos, float]]
    """x in nanoseconds, and the share of requests at least that slow."""


class NoiseCause(Record):
    """What one cause took from the thread."""

    cause: NoiseKind
    """What kind of cause."""
    culprit: str | None
    """Which thread, interrupt, softirq or CPU; for a cause without one, how it is known."""
    gaps: int
    """Gaps in which it took the largest part."""
    length: Distribution
    """The length of these gaps."""
    own: bool
    """The thread is one of taillab's own."""
    share: float
    """The same as a share of all time in gaps with a known beginning and end."""
    stolen_ns: Nanos
    """The time that it took in all gaps, even where something else took more, in nanoseconds."""


class NoiseQuota(Record):
    """A limit on the CPU time of the loops' control group, or of one above it."""

    period_ns: Nanos
    """The period, in nanoseconds."""
    quota_ns: Nanos
    """Time for all CPUs together in each period, in nanoseconds."""
    throttled: int
    """How often it held the group back while the loops ran."""
    throttled_ns: Nanos
    """For how long, summed over its CPUs, in nanoseconds."""


class NoiseRow(Record):
    """One loop on one CPU."""

    above: Above
    """How often two reads were more than 1, 10 and 100 µs apart."""
    attributed_share: float | None
    """Share of the stolen time that something in this kernel is known to have taken; `null` without causes.
    """
    began_ns: Monotonic
    """When it began, in nanoseconds since boot."""
    below_share: Share | None
    """Share of the stolen time that nothing in this kernel took and that is shown to come from below it
    (hypervisor, firmware, hardware): as much is lost on this CPU with interrupts off. `null` where no loop
    with interrupts off ran on this CPU in the same step.
    """
    busy_cpus: int
    """CPUs that were busy with such a loop at the same time, this one included."""
    causes: list[NoiseCause] | None
    """What took the time, the largest first; `null` where nothing recorded it."""
    ccdf: list[tuple[int, float]]
    """(nanoseconds, share of reads that took longer), for figures."""
    cpu: int | None
    """The CPU that it was pinned to; `null` where it was not pinned."""
    gaps: int
    """Number of gaps."""
    gaps_not_kept: int
    """Gaps that came faster than they could be kept one by one: they are counted, but have no cause."""
    longest: list[LongGap]
    """The longest gaps, in order of time."""
    loop: LoopKind
    """Where the loop ran."""
    migrations: int
    """How often the thread was found on another CPU than at the read before; the time between two such reads
    is not a gap.
    """
    over_time: OverTime
    """Stolen time over time."""
    policy: str
    """The scheduling policy: `other` or `fifo:PRIORITY`."""
    reads: Distribution
    """The time between two reads, of all reads."""
    reads_clock: ReadStyle
    """How it read the clock."""
    step: str
    """What is special about this row, in a few words; empty for the plain measurement."""
    stolen_ns: Nanos
    """Time in gaps, in nanoseconds."""
    stolen_share: float
    """The same as a share of the time watched."""
    threshold_ns: Nanos
    """Where two reads are further apart than this, there is a gap."""
    watched_ns: Nanos
    """For how long the clock was watched, in nanoseconds."""


class NotKept(Record):
    """Why a winner does not stay applied, and what to do instead."""

    command: str
    """The command that applies it."""
    why: str
    """Why, in a sentence."""


class Objective(Record):
    """A limit on a quantile of the response time, written `p99.9<=200us`."""

    limit_ns: Nanos
    """The largest value that the quantile may have."""
    q: float
    """The probability, in (0, 1)."""


class ObjectiveAt(Record):
    """A step of a search, compared with the objective."""

    held: bool
    """The quantile is within the limit, and the server kept up and answered."""
    hi_ns: Nanos | None
    """Upper end; `null` with a value where it lies beyond the largest observation."""
    lo_ns: Nanos | None
    """Lower end of its interval."""
    sure: bool
    """The interval lies on one side of the limit."""
    value_ns: Nanos | None
    """The quantile; `null` where the sample cannot support it."""


class Observer(Record):
    """What watching cost the machine."""

    cpu_share: float
    """CPU time of taillab's own threads while it recorded, as a share of one CPU."""
    events_per_request: float
    """Events recorded per request."""
    peak_memory_bytes: int
    """The most memory that taillab had resident."""
    program_ns_per_request: float | None
    """Time in the eBPF programs per request, in nanoseconds, as counted by the kernel. The count was on for
    the first requests only. Its own cost is included; the time to enter the programs is not. `null` where
    that was not counted.
    """
    written_bytes_per_s: float
    """Bytes written to disk per second; 0 when nothing was saved."""


class OverTime(Record):
    """Time in gaps, window by window."""

    spells: list[tuple[int, int, float]]
    """Windows in a row that lost more than three times the median, as (first, last, share lost)."""
    stolen_ns: list[Nanos]
    """Time in gaps that ended in each window, in nanoseconds."""
    window_ns: Nanos
    """Length of a window, in nanoseconds."""


class Overhead(Record):
    """Peak throughput with the probe compared with that without it, in interleaved blocks on one start of the
    server: the interval does not include the variation between starts.
    """

    cpu_ns_per_request: float | None
    """The average loss as CPU time of the server's core per request, in nanoseconds."""
    pairs: int
    """Interleaved pairs of blocks; 0 when it was not measured."""
    throughput_loss: float | None
    """Median over the pairs of 1 − (with ÷ without)."""
    throughput_loss_hi: float | None
    """Upper end of its interval."""
    throughput_loss_in_slices: float | None
    """Where all but T1 and T6 is recorded in slices, the loss within a slice; `throughput_loss` is then the
    average over the time.
    """
    throughput_loss_lo: float | None
    """Lower end of its interval."""


class Overload(Record):
    """A stretch in which work came faster than it was done, for a second or more. Times are since the start
    of the measurement.
    """

    came_per_s: float
    """Requests that came per second while the queue grew: that arrived at the server or, where the client is
    ours, were due.
    """
    capacity_per_s: float | None
    """The capacity according to t: workers ÷ t; `null` where t is not known."""
    cpu: CpuTaken | None
    """What the server's CPUs did while the queue grew; `null` where that was not recorded."""
    done_per_s: float
    """Requests that were answered per second while it grew: the capacity at that time."""
    from_ns: Nanos
    """When the queue began to build up."""
    outlasts_load: bool
    """The queue was still there when the last request came, so the percentiles grow with the length of the
    measurement.
    """
    service_time_ns: Nanos | None
    """The t that this capacity was computed with."""
    to_ns: Nanos | None
    """When it was worked off; `null` where the recording ended before."""
    unanswered: int
    """Requests of this stretch that were never answered; 0 where they are too few to be of the overload."""
    waiting: int
    """Requests that waited when the queue was longest, in the server or, where the client is ours, in the
    client.
    """
    worst_ns: Nanos
    """When the queue was longest."""


class OwnWork(Record):
    """The ideal in which each request is served for as long as its own work took on the CPU, undisturbed."""

    cv: float
    """The coefficient of variation of the requests' own work."""
    is_base: bool
    """Whether `ratio` is measured ÷ this ideal: above a coefficient of 0.5, the requests are not alike."""
    sojourn: Distribution
    """The sojourn in that queue. Its percentiles have no intervals of their own."""


class PairsAt(Record):
    """Latency at one quantile in each pair of blocks."""

    after_ns: list[Nanos]
    """With it, in the same order."""
    before_ns: list[Nanos]
    """Without the mitigation, pair by pair."""
    q: float
    """The quantile."""


class PaperFigures(Record):
    """The paper's figures for a row."""

    median_ns: Nanos
    """The median, in nanoseconds."""
    min_ns: Nanos
    """The minimum, in nanoseconds."""
    p999_ns: Nanos
    """The 99.9th percentile, in nanoseconds."""
    tail_ns: Nanos
    """The maximum, in nanoseconds."""


class PredictedPoint(Record):
    """One percentile, now and predicted."""

    hi_ns: Nanos | None
    """Upper end."""
    lo_ns: Nanos | None
    """Lower end of the prediction's interval, the model's own error included."""
    measured_ns: Nanos
    """As measured."""
    predicted_ns: Nanos
    """As predicted."""
    q: float
    """The quantile."""


class Prediction(Record):
    """What the sojourn would be without a cause, or with a mitigation."""

    change: str
    """What is changed: `without background`, `rt-priority`."""
    command: str | None
    """The command that would do it; `null` for a mere what-if."""
    cost: str | None
    """What it costs: `one core serves interrupts only: 3 workers instead of 4`."""
    description: str
    """In words: `the server's threads under SCHED_FIFO`."""
    points: list[PredictedPoint]
    """p50, p99, p99.9, as far as the sample supports them."""
    removes: list[Cause]
    """The causes that it removes."""


class Quantile(Record):
    """One quantile with its confidence interval (`CONFIDENCE`)."""

    hi: Nanos | None
    """Upper end of the interval; `null` with a value when it lies beyond the largest observation, so that the
    sample gives only a lower bound of the quantile.
    """
    lo: Nanos | None
    """Lower end of the interval; present whenever the value is."""
    q: float
    """The probability, in (0, 1)."""
    value: Nanos | None
    """The estimate; `null` where the sample cannot support it (`quantile_ranks`)."""


class QuantileNeed(Record):
    """A quantile that needs more round trips than there are."""

    q: float
    """The probability."""
    round_trips: int
    """About how many round trips it needs."""


class Ratio(Record):
    """A ratio with its 95 % confidence interval; a value below 1 means less."""

    hi: float | None
    """Upper end; `null` where there is none."""
    lo: float | None
    """Lower end of its interval; `null` where there is none."""
    value: float
    """The ratio."""


class RatioAt(Record):
    """The ratio at one quantile."""

    hi: float | None
    """Upper end; `null` where there is none."""
    lo: float | None
    """Lower end of its interval; `null` where there is none."""
    q: float
    """The quantile."""
    value: float
    """The ratio."""


class RatioPart(Record):
    """A part of a `DividedRatio`."""

    causes: list[Cause]
    """The causes that it sums up; none: the probe."""
    value: float
    """How much of the ratio it makes; negative where the server beat the ideal in it."""
    what: str
    """What it is: `wake-ups and idle exits`."""


class Reason(Record):
    """One reason against a measurement, or one warning about it."""

    key: str
    """Name for scripts, `snake_case`; `docs/verdict.md` lists them all."""
    text: str
    """One line for people: what was seen, and what to do about it."""


class ReplayedSchedule(Record):
    """The recorded queue replayed with the same disturbances at the same times, and each request sent when it
    was due.
    """

    points: list[PredictedPoint]
    """The percentiles of the sojourn, as measured and on schedule."""
    without_other_threads: list[PredictedPoint] | None
    """The same without other threads on the server's CPUs. Empty where they did not delay requests."""


class ResentResponses(Record):
    """Responses that TCP sent again after all of them had left. T6 is when they left first, so they are in no
    sojourn; where the first packet was lost, the client waited for the second.
    """

    longest_ns: Nanos
    """The longest such time."""
    median_ns: Nanos
    """The median time from T6 to the last segment that was sent again."""
    responses: int
    """How many."""
    segments: int
    """In how many segments."""


class RttAdded(Record):
    """What a suspect adds at one quantile: the difference of two rows. It is negative where the row without
    the suspect is slower.
    """

    hi_ns: int | None
    """Upper end in nanoseconds."""
    lo_ns: int | None
    """Lower end in nanoseconds, from the ends of both rows' intervals; `null` where one has none."""
    ns: int
    """The difference in nanoseconds."""
    q: float
    """The quantile."""


class RttBand(Record):
    """The round trips between two quantiles."""

    from_q: float
    """From this quantile of the round trips …"""
    mean_ns: Nanos
    """How long they took on average."""
    parts: list[RttPartMean]
    """What they were spent on, one entry for each part; the means add up to `mean_ns`."""
    round_trips: int
    """Number of round trips in the band."""
    to_q: float
    """… to this one."""


class RttBursts(Record):
    """Whether slow round trips are single events or come in bursts."""

    autocorrelation: list[tuple[int, float]]
    """Correlation of "the n-th request is slow" with "the (n + lag)-th is", for each lag."""
    episodes: int
    """Episodes: slow requests that are neighbours in the order of T1, or were in the server at once."""
    in_runs_share: float
    """Share of the slow requests that come in runs of two or more."""
    longest: int
    """The length of the longest such run."""
    mean_episode_requests: float
    """Mean number of requests in an episode."""
    q: float
    """Slow means above this quantile of the sojourn."""
    run_lengths: list[tuple[int, int]]
    """Runs of consecutive slow round trips: (length of the run, how many such runs); the last entry is for
    its length and all longer ones.
    """
    threshold_ns: Nanos
    """A round trip is slow if it took longer than this."""


class RttCounts(Record):
    """What became of the messages."""

    answered: int
    """Round trips completed."""
    duplicated: int
    """Answers to a message that had been answered already."""
    foreign: int
    """Messages that answer none of ours."""
    late: int
    """Answers that came after their message had been given up."""
    lost: int
    """Messages without an answer within the timeout."""
    sent: int
    """Messages sent, without the warm-up."""


class RttDisturbance(Record):
    """Something that had a CPU while a slow round trip needed it."""

    cause: Cause
    """What kind of disturbance it was."""
    culprit: Culprit | None
    """The culprit; `null` when there is no particular one."""
    end: RttEnd
    """Whose CPU it had."""
    round_trips: int
    """Slow round trips that it delayed."""
    share: Share
    """Its share of the time by which the slow round trips exceed the usual ones."""
    total_ns: Nanos
    """How long it delayed them, in all."""


class RttElimination(Record):
    """How much of a quantile is left when a suspect is taken away: the argument of the paper's section 6,
    applied to the rows of this result.
    """

    conns: int
    """Connections at once."""
    size_bytes: int
    """Length of the messages in bytes."""
    suspects: list[RttSuspect]
    """The suspects, TCP first."""


class RttExplanation(Record):
    """Where the tail comes from: round trips of a separate run, with the kernel probe."""

    bands: list[RttBand]
    """Bands from fast to slow, the usual round trips first."""
    disturbances: list[RttDisturbance]
    """Who had the CPUs in the slow round trips (those above p99), the worst first."""
    incomplete: int
    """Round trips of that run without all stamps; they are in no figure here."""
    lost_events: int
    """Events that the probe lost."""
    round_trips: int
    """Round trips whose six stamps were all found."""
    rtt: Distribution
    """The round trips with all stamps. Compared with the row's `rtt`, it shows what the probe costs."""


class RttOpenLoop(Record):
    """The load of a row whose messages were sent by a schedule."""

    capacity: Capacity | None
    """The peak, where the load was given as a share of it."""
    load: LoadSummary
    """The load of all runs, one after another."""
    verdict: Verdict
    """Whether it can be believed; a percentile that it withdraws is nowhere in the row."""


class RttPartMean(Record):
    """What one part took on average."""

    excess: Share | None
    """The part's share of the time by which these round trips exceed the usual ones; `null` for the usual
    ones.
    """
    hi_ns: Nanos | None
    """Upper end in nanoseconds."""
    lo_ns: Nanos | None
    """Lower end of its interval (95 %); `null` where the sample supports none."""
    mean_ns: Nanos
    """The mean of this part."""
    part: RttPart
    """Which part."""


class RttRow(Record):
    """One combination of parameters, and its round trips."""

    bursts: RttBursts | None
    """Whether slow round trips come singly or in bursts; `null` with too few of them."""
    conns: int
    """Connections at once, each with one message under way."""
    counts: RttCounts
    """What was sent and what became of it, over all runs."""
    ended_after_ns: Nanos | None
    """The longest that a run could last, where this limit ended a run before its count."""
    explanation: RttExplanation | None
    """Where the tail comes from; `null` where it was not asked for, or no packet can be stamped."""
    failure: str | None
    """Why the row ended early, in one sentence, where it was neither this limit nor an interruption."""
    fan_out: list[FanOut]
    """The slowest of several nodes that are asked at once, each with this distribution of round trips."""
    functional_only: str | None
    """Why the times say nothing about the protocol, where that is so: the row then shows only that the
    exchange works.
    """
    mode: str
    """How the client (and our server) waits: `blocking`, `nonblocking`, `epoll`, `busy-poll` or `io_uring`.
    """
    needs: list[QuantileNeed]
    """Quantiles that the sample cannot support, and about how many round trips each would need."""
    open_loop: RttOpenLoop | None
    """The load, where messages were sent by a schedule; then `rtt` counts from when each was due, and `conns`
    share one schedule.
    """
    partial: bool
    """The row ended early: it has only what was measured until then."""
    proto: str
    """What carries the messages: `tcp`, `udp`, `unix`, `shm`, `xdp`, `rdma-send`, `rdma-read` or `rdma-
    write`.
    """
    rtt: Distribution
    """Round trips of all runs together. A lost message counts with the time that it was waited for, since its
    round trip took at least that long.
    """
    runs: list[RttRun]
    """Each run separately, in order of time."""
    size_bytes: int
    """Length of a message in bytes, the same both ways."""
    trimmed: list[TrimmedQuantile]
    """For each quantile the mean over the runs, without the slowest and the fastest run."""
    unexplained_because: str | None
    """Why there is no explanation although it was asked for."""
    worst_to_median: float | None
    """The slowest round trip divided by the median: both as means over the runs without the extremes, or of
    all runs together where there are fewer than three.
    """
    xdp_attachment: XdpAttachment | None
    """Where the kernel takes the packets of AF_XDP; `generic` if it is so at one of the two ends."""


class RttRun(Record):
    """One run of a row."""

    client_cpu_ns_per_round_trip: Nanos | None
    """CPU time of the client's threads per round trip."""
    length_ns: Nanos
    """How long it took, without the warm-up."""
    rtt: Distribution
    """The round trips of this run."""


class RttSuspect(Record):
    """One suspect."""

    adds: list[RttAdded]
    """What it adds at each quantile that both rows support."""
    suspect: str
    """What is suspected: `TCP's own work`, `the kernel's stack and its scheduler`, `the rest`."""
    with_: str
    """The row that has it: `tcp blocking`."""
    without: str | None
    """The row without it; `null` where nothing is left to take away."""


class Scaling(Record):
    """What several workers answer together at the peak, compared with as many times what one of them answers
    by itself. Locks, caches and memory that they share, and work that is shared out unevenly, make it less
    than 1. Some of that may be in `one_per_s`, since the others work a part of the time while one is
    watched.
    """

    not_known_because: NoScaling | None
    """Why it is not known what they reach. Absent where it is."""
    one_per_s: float | None
    """Requests per second that one of them answers, by its own t: 1 / t. Absent where that is not known."""
    reached: Share | None
    """The peak ÷ (`workers` × `one_per_s`), either both with the probe or both without it. Absent where that
    is not known.
    """
    workers: int
    """The workers, each with a core of its own; virtual ones wait and need none."""


class Scheduled(Record):
    """What arrivals by the schedule see of the server: the experiment's view, where the generator is ours.
    `measured`, `ideal` and all that follows from them are of every request, with the arrivals as they
    came: they hold whatever the generator did. This view is of the parts of the measurement in which the
    generator kept its schedule. Only here something is cut.
    """

    at_worst: Distribution | None
    """What the client waited, from when each request was due, for all requests, cut or not: an upper bound of
    this view. It holds where what held the generator up held the server up too, as a stall of the whole
    machine does, so that the cut takes away what other clients would have waited. `sojourn` and
    `load.response_time` are the lower bound. Absent where nothing was cut.
    """
    claims: list[Claim]
    """The percentiles of this view, and whether each holds. Those that do not are taken out, here and in what
    the client saw (`load.response_time`, `load.service_time`, `client_minus_server`).
    """
    cut: CutSummary | None
    """What was cut. Absent where nothing was."""
    ideal: Distribution | None
    """The ideal sojourn of the same requests. Absent where nothing was cut, or where there is no comparison
    with the ideal.
    """
    replayed: ReplayedSchedule | None
    """The same for all requests, cut or not, by a replay. Absent where nothing was cut, or where the replay
    does not reproduce the measurement.
    """
    same_as_measured: bool
    """Nothing was cut: the distributions of this view are `measured.sojourn` and `ideal.sojourn`, and are not
    repeated.
    """
    sojourn: Distribution | None
    """T6 − T1 of the requests that are not cut. Absent where nothing was cut."""


class SearchResult(Record):
    """What a search found."""

    fails_at_per_s: float | None
    """The lowest rate that does not meet it; `null` if all do."""
    held: bool
    """Some rate meets it."""
    objective: Objective
    """The objective of the search."""
    rate_per_s: float | None
    """The highest rate that meets it, below all that do not; `null` if none does."""
    surely_fails_per_s: float | None
    """Upper end: the lowest rate at which even the lower end is beyond the limit."""
    surely_holds_per_s: float | None
    """Lower end of the interval of the true answer: the highest rate at which even the upper end of the
    quantile's interval is within the limit.
    """
    utilization: float | None
    """That rate as a share of the capacity, where this is known."""


class Share(Record):
    """A share with its interval (95 %)."""

    hi: float | None
    """Upper end."""
    lo: float | None
    """Lower end; `null` where the sample supports no interval."""
    value: float
    """The estimate, between 0 and 1."""


class SimulatedRun(Record):
    """One simulated system."""

    arrivals: str
    """The arrival process as on the command line, or `trace:FILE`."""
    discipline: str
    """The discipline as on the command line."""
    engine: Engine
    """How it was calculated."""
    exact: Exact | None
    """What theory says; `null` when it was not asked for, `Some(None)` when it is not known."""
    fanout: Fanout | None
    """The largest of several parts."""
    mean_standard_error_ns: float | None
    """Standard error of the mean sojourn, in nanoseconds."""
    replications: int
    """Independent replications; 1 for a trace."""
    seed: int
    """The seed of every random choice."""
    service: str
    """The service times as on the command line."""
    service_mean_ns: float
    """Their mean, in nanoseconds."""
    sojourn: Distribution
    """Arrival to departure."""
    stopped: Literal["finished", "precise", "limit", "interrupted"]
    """Why it stopped: `finished`, `precise`, `limit` or `interrupted`."""
    utilization: float
    """Arrival rate · mean service time / capacity."""
    wait: Distribution
    """Arrival to the start of service."""
    waited_share: float | None
    """The share of requests that waited at all."""
    warm_up: WarmUp
    """What was discarded."""
    warnings: list[str]
    """Why the numbers may be wrong."""
    workers: int
    """The number of workers."""
    z: Z | None
    """How far the simulation is from it, in standard errors."""


class Sleeping(Record):
    """How often the server's workers fell asleep for want of work, and what it took to wake them. Nothing of
    it depends on t.
    """

    at_p50_ns: float
    """Of the requests around p50 of the sojourn: the mean time in which CPUs left idle states and workers
    were woken (`idle_exit`, `wakeup`), in nanoseconds.
    """
    cpu_ns_each: float | None
    """CPU time of a sleep with its wake-up, in nanoseconds: what a worker's stay on its CPU with one request
    takes, less what each further request adds. `null` where stays with one or with several are few.
    """
    cpu_share: float | None
    """The same as a share of the workers' own CPU time."""
    found_asleep_share: float
    """Share of the requests whose worker slept, or was on its way, when they reached their socket."""
    share_of_p50: float
    """The same as a share of their sojourn."""
    wait_asleep_ns: Nanos | None
    """Median T2 to T3 of those requests; `null` where there are none."""
    wait_awake_ns: Nanos | None
    """Median T2 to T3 of the others, which wait for their turn."""
    wakes_per_request: float
    """Wake-ups per request."""
    wakes_per_s: float
    """Wake-ups of workers per second, all workers together."""


class SlowOperation(Record):
    """How many of the slow requests asked for the same."""

    name: str
    """The name of the command or method: `EVALSHA`, `GET`."""
    requests: int
    """How many there were."""


class SlowRequest(Record):
    """One of the slowest requests in detail."""

    activities: list[Activity]
    """What the server's CPUs did meanwhile."""
    ideal_ns: Nanos | None
    """Its sojourn in the ideal queue; `null` where the comparison with it was withdrawn."""
    joined_stretches: int
    """Stretches that were joined to the one before (`SlowRequest::shorten`)."""
    omitted_activities: int
    """Activities that were left out (`SlowRequest::shorten`)."""
    port: int
    """The client's port; 0 where it is not known."""
    sojourn_ns: Nanos
    """T6 − T1."""
    stamps_ns: list[Nanos | None]
    """T2 … T6 as times after T1; `null` where a stamp is missing."""
    stretches: list[Stretch]
    """The stretches, in order; their lengths sum to the sojourn."""
    t1: Monotonic
    """T1, nanoseconds since boot."""
    worker: Culprit | None
    """The worker that served it."""


class SlowRequests(Record):
    """Requests whose own work takes far longer than that of the others, and whom they delayed."""

    delayed: int
    """How many others waited for them."""
    mean_delay_ns: Nanos
    """For how long on average."""
    mean_own_ns: Nanos
    """Their mean own time on the CPU."""
    operations: list[SlowOperation]
    """What they asked for, the most frequent first; empty where their content was not read. Those without a
    known name are left out.
    """
    others_own_ns: Nanos
    """The same of all others."""
    requests: int
    """How many there were."""


class Stages(Record):
    """One distribution for each stage."""

    t1_t2: Distribution
    """T1–T2."""
    t2_t3: Distribution
    """T2–T3."""
    t3_t4: Distribution
    """T3–T4."""
    t4_t5: Distribution
    """T4–T5."""
    t5_t6: Distribution
    """T5–T6."""


class StagesAt(Record):
    """Mean stages of the complete requests around one percentile of the sojourn."""

    mean_sojourn_ns: float
    """Their mean sojourn, in nanoseconds."""
    mean_stage_ns: list[float]
    """Their mean stages, in nanoseconds; the five sum to the mean sojourn."""
    q: float
    """The percentile's probability; 1 for the slowest request."""
    requests: int
    """Complete requests in the band."""


class Stretch(Record):
    """A stretch of a slow request with one cause."""

    cause: Cause
    """Why."""
    culprit: Culprit | None
    """Who or what caused it."""
    from_ns: Nanos
    """When it began, in nanoseconds after T1."""
    inherited: bool
    """The delay happened to another request, behind which this one waited."""
    lasted_ns: Nanos
    """How long it was."""


class TailAt(Record):
    """Latency at one quantile, without and with a mitigation."""

    after_ns: Nanos
    """With it."""
    before_ns: Nanos
    """Without it."""
    ideal_ns: Nanos | None
    """The ideal sojourn there, from the measurement before all trials; `null` where there is none."""
    q: float
    """The quantile."""


class TakenBy(Record):
    """A program that took a part of the server's CPU time."""

    name: str
    """The name of its threads."""
    share: float
    """Its part."""


class TakenByHypervisor(Record):
    """What the hypervisor took of the CPUs on which the server's threads ran."""

    share: float
    """Share of the measurement's time that it took."""
    spells: list[HypervisorSpell]
    """When it took far more than usual, in order of time."""
    stalls: int
    """How often it took a CPU."""


class Topology(Record):
    """A round trip through a network."""

    ccdf: list[tuple[int, float]]
    """(nanoseconds, share that took longer), for figures."""
    class_of_median: Class | None
    """The class of the median."""
    class_of_p999: Class | None
    """The class of the 99.9th percentile."""
    description: str
    """What it is, in a sentence."""
    name: str
    """`rack`, `hft`, `fat-tree`, `large-fat-tree`, or a name of the user's."""
    parts: list[TopologyPart]
    """What each part adds."""
    round_trip: Distribution
    """The latency of the round trip."""


class TopologyPart(Record):
    """A part of a round trip."""

    at_median_ns: Nanos
    """Its mean in round trips around the median, in nanoseconds."""
    in_tail_ns: Nanos
    """Its mean in the slowest thousandth of the round trips, in nanoseconds."""
    law: str
    """Its distribution, or the row that it is taken from."""
    measured: bool
    """It is a row of this result; otherwise it is a stated constant."""
    name: str
    """What it is."""
    traversals: int
    """How often a round trip passes through it."""


class TrimmedQuantile(Record):
    """The paper's average of runs at one quantile."""

    mean_ns: Nanos | None
    """The mean over the runs without the slowest and the fastest at this quantile; `null` with fewer than
    three runs, or where one of them has too few round trips for it. A run whose slow round trips come in
    bursts is in the mean too: the spread of the runs shows what it is worth.
    """
    q: float
    """The probability."""
    runs: int
    """Runs that are in the mean."""


class TscClock(Record):
    """The time stamp counter."""

    clocksource: str
    """The clock that the kernel uses now."""
    frequency_hz: float
    """Ticks per second, measured against the kernel's clock."""
    invariant: bool
    """It counts at one rate, whatever the CPU's frequency and power state."""
    quantum_fractional_ns: float
    """The same in nanoseconds (a fraction)."""
    quantum_ticks: int
    """The least step between two reads that differ, in ticks."""


class UnsettledAt(Record):
    """What is missing above a percentile. A request that finds the server busy since before the end of the
    last cut is not counted, so there are too few requests of long busy periods.
    """

    q: float
    """The percentile's probability."""
    share: float
    """About this share of the requests above it is missing."""


class UpstreamAnswers(Record):
    """Another server that this one asks over TCP, and how long it takes to answer."""

    answers: Distribution
    """From when a question was written to its connection until the first data of the answer was there."""
    server: str
    """Its address and port, with the program if it runs on the same machine."""


class Verdict(Record):
    """Whether a measurement can be trusted."""

    claims: list[Claim] | None
    """The claims of the result, and whether each holds. Absent in the verdict of a sweep, whose steps have
    their own.
    """
    reasons: list[Reason]
    """Why nothing of it can be used; empty when it is valid."""
    valid: bool
    """Some of the result can be used; `claims` says what."""
    warnings: list[Reason]
    """What a reader should know that does not make it invalid."""


class WarmUp(Record):
    """The start of each replication, which is discarded."""

    capped: bool
    """Shorter than the estimate."""
    requests: int
    """Requests of each replication."""


class Wire(Record):
    """The load by the kernel's time stamps, which leave out the delays within the client's process."""

    lateness: Distribution
    """From the intended send until the packet left."""
    service_time: Distribution
    """From when the packet left until the response's packet came in."""
    stamped: int
    """Requests with both stamps."""


class Withdrawn(Record):
    """Why the comparison with the ideal queue does not hold."""

    because: Literal[
        "service_time_unknown",
        "clients_wait",
        "service_time_disagrees",
        "ideal_above_measured",
    ]
    at_once: int | None
    """The most requests, or batches of requests, that they have outstanding at once."""
    given_ns: Nanos | None
    """What was given."""
    recorded_ns: Nanos | None
    """What a request cost."""
    ideal_ns: Nanos | None
    """The median of the ideal sojourn."""
    measured_ns: Nanos | None
    """The median of the measured sojourn."""


class WorkerShare(Record):
    """One worker of the server."""

    busy_share: float
    """Share of the measurement in which it was busy with requests; that of several threads is the sum of
    theirs.
    """
    mean_sojourn_ns: float
    """Mean sojourn of its requests, in nanoseconds."""
    name: str
    """The thread's name (`comm`)."""
    requests: int
    """Requests that it served."""
    tid: int
    """The thread; 0 for all threads together that have no entry of their own, since there were thousands."""


class Z(Record):
    """Deviations in standard errors."""

    mean: float | None
    """Of the mean sojourn."""
    quantiles: list[ZQuantile]
    """Of the share of requests above each exact quantile."""


class ZQuantile(Record):
    """The deviation at one quantile."""

    q: float
    """The probability."""
    z: float | None
    """`null` where nothing can be tested: no law, too few requests, or a jump of the law."""


class Report(Record):
    """The output of `taillab run`, `trace` and `explain` with `--json`, and `summary.json`. Of a run `load`,
    `client_minus_server`, `calibration` and `scheduled` are there.
    """

    arrival_rate_per_s: float
    """Requests that came in per second; of a sweep, over all loads."""
    assertions: list[Assertion] | None
    """The limits that the result was to hold (`--assert`). Absent where there were none."""
    busy_periods: BusyPeriods | None
    """The service time as the server's busy periods show it; absent where hardly any request had to wait, or
    where it was not recorded who was on the CPUs.
    """
    busy_periods_by_cpu: list[BusyPeriodsOfCpu] | None
    """The same for each CPU by itself, where several served and show it."""
    calibration: Calibration | None
    """How the peak was measured, where it was."""
    causes: list[CauseShare]
    """Causes of the excess: first each cause as a whole, which together make up all of it, then their
    culprits. Empty where disturbances were not recorded.
    """
    client_minus_server: Distribution | None
    """Where the generator was ours: the client's service time − (T6 − T1), request by request, of the
    requests of `scheduled`. That is the way there and back, including the client's own stack and its
    reading.
    """
    command: Literal["run", "trace", "explain"]
    """The command that wrote this: `run`, `trace` or `explain`."""
    duration_ns: Nanos
    """Length of what was measured: from the start of the measurement to the last event; of a sweep, all loads
    together.
    """
    excess: Distribution
    """Measured − ideal, request by request, where the measured one is longer."""
    explanation: Explanation | None
    """The rest of the explanation; `null` where disturbances were not recorded."""
    factorial: Factorial | None
    """What `--factorial` measured; absent without it."""
    fixes: list[Fix] | None
    """What `--fix` tried, in this order; absent without it."""
    ideal: Ideal
    """The same arrivals through the ideal queue."""
    left_out: Exclusions | None
    """What is not counted there, since it says nothing about how the server answers."""
    load: LoadSummary | None
    """One load by a schedule, where the generator was ours."""
    matching: Matching
    """How well events were matched with responses."""
    measured: Measured
    """What was measured of the server."""
    model_fit: ModelFit | None
    """Error of the causal replay; `null` where there is none."""
    observer: Observer | None
    """What watching cost; `null` where the recording does not say, or nothing was watched."""
    overhead: Overhead
    """What the probe costs."""
    partial: bool
    """It ended before its time (Ctrl-C, or the server died), or the file was cut off; of a sweep, some of the
    loads are missing or short.
    """
    predictions: list[Prediction]
    """Forecasts by the causal replay, the best first; empty where it does not fit."""
    ratio: list[DividedRatio]
    """Measured ÷ ideal at p50, p99 and p99.9, divided among what makes it more than 1. Empty where there is
    no ideal, or where disturbances were not recorded.
    """
    scheduled: Scheduled | None
    """What requests that were sent on schedule saw; absent where the generator was not ours. Everything else
    is of all requests.
    """
    schema_version: Literal[1]
    """Version of this shape: `SCHEMA_VERSION`."""
    sent_again: ResentResponses | None
    """Responses that were sent again; absent where none was."""
    service_time_hi_ns: Nanos | None
    """Upper end of the interval of t."""
    service_time_lo_ns: Nanos | None
    """Lower end of the interval of t; `null` where t was given."""
    service_time_ns: Nanos
    """t: the ideal service time of a request."""
    service_time_source: ServiceTimeSource
    """How t was found."""
    stages: Stages
    """The stages over all complete requests."""
    stages_at: list[StagesAt]
    """Where the requests around each percentile of the sojourn spent their time."""
    started_unix_s: int
    """Start of the measurement, seconds since 1970 (UTC)."""
    target: str
    """What was measured: `memcached over UDP`, `pid 4711 (nginx), port 80 over TCP`,
    `memcached+udp://127.0.0.1:11211`.
    """
    verdict: Verdict
    """Whether the result can be believed."""


class LoadReport(Record):
    """The output of `taillab load --json`, and `result.json`. `generator.mode` says how requests were sent:
    one load by a schedule is in `load`, several are in `generator.steps`, a closed loop is in
    `generator.closed_loop`.
    """

    arrival_rate_per_s: float
    """Requests that came in per second; of a sweep, over all loads."""
    assertions: list[Assertion] | None
    """The limits that the result was to hold (`--assert`). Absent where there were none."""
    command: Literal["load"]
    """The command that wrote this."""
    duration_ns: Nanos
    """Length of what was measured: from the start of the measurement to the last event; of a sweep, all loads
    together.
    """
    factorial: Factorial | None
    """What `--factorial` measured; absent without it."""
    fixes: list[Fix] | None
    """What `--fix` tried, in this order; absent without it."""
    generator: Generator
    """The generator, with what it measured besides one load by a schedule."""
    load: LoadSummary | None
    """One load by a schedule, where the generator was ours."""
    observer: Observer | None
    """What watching cost; `null` where the recording does not say, or nothing was watched."""
    partial: bool
    """It ended before its time (Ctrl-C, or the server died), or the file was cut off; of a sweep, some of the
    loads are missing or short.
    """
    schema_version: Literal[1]
    """Version of this shape: `SCHEMA_VERSION`."""
    started_unix_s: int
    """Start of the measurement, seconds since 1970 (UTC)."""
    target: str
    """What was measured: `memcached over UDP`, `pid 4711 (nginx), port 80 over TCP`,
    `memcached+udp://127.0.0.1:11211`.
    """
    verdict: Verdict
    """Whether the result can be believed."""


class RttReport(Record):
    """The output of `taillab rtt --json`, and `result.json` of its directory."""

    client_cpus: list[int]
    """CPUs of the client's threads."""
    command: Literal["rtt"]
    """The command that wrote this: `COMMAND`."""
    count: int
    """Round trips measured in each run; those of the warm-up before are not counted."""
    elimination: list[RttElimination] | None
    """What TCP, the kernel's stack and the rest each add, where there are rows that differ in nothing else.
    """
    link: Link
    """What is between client and server."""
    partial: bool
    """It was interrupted, or a row failed: rows are missing or short."""
    rows: list[RttRow]
    """One for each combination, in the order of the command line."""
    runs: int
    """Runs planned for each row."""
    schema_version: Literal[1]
    """Version of this shape: `SCHEMA_VERSION`."""
    server: str
    """Who answered: `taillab`, or the target as it was given, with the address that a name stands for."""
    server_cpus: list[int]
    """CPUs of the server's threads; empty where the server is not ours."""
    started_unix_s: int
    """Start of the first row, seconds since 1970 (UTC)."""


class SimReport(Record):
    """The output of `taillab sim --json`, and `sim.json`. With `--exact` the keys `exact` and `z` are there.
    """

    command: Literal["sim"]
    """Always `sim`."""
    partial: bool
    """It was interrupted; the results are those so far."""
    schema_version: Literal[1]
    """Version of this shape: `SCHEMA_VERSION`."""
    arrivals: str | None
    """The arrival process as on the command line, or `trace:FILE`."""
    discipline: str | None
    """The discipline as on the command line."""
    engine: Engine | None
    """How it was calculated."""
    exact: Exact | None
    """What theory says; `null` when it was not asked for, `Some(None)` when it is not known."""
    fanout: Fanout | None
    """The largest of several parts."""
    mean_standard_error_ns: float | None
    """Standard error of the mean sojourn, in nanoseconds."""
    replications: int | None
    """Independent replications; 1 for a trace."""
    seed: int | None
    """The seed of every random choice."""
    service: str | None
    """The service times as on the command line."""
    service_mean_ns: float | None
    """Their mean, in nanoseconds."""
    sojourn: Distribution | None
    """Arrival to departure."""
    stopped: Literal["finished", "precise", "limit", "interrupted"] | None
    """Why it stopped: `finished`, `precise`, `limit` or `interrupted`."""
    utilization: float | None
    """Arrival rate · mean service time / capacity."""
    wait: Distribution | None
    """Arrival to the start of service."""
    waited_share: float | None
    """The share of requests that waited at all."""
    warm_up: WarmUp | None
    """What was discarded."""
    warnings: list[str] | None
    """Why the numbers may be wrong."""
    workers: int | None
    """The number of workers."""
    z: Z | None
    """How far the simulation is from it, in standard errors."""
    runs: list[SimulatedRun] | None
    """In the order of the command line."""


class BudgetReport(Record):
    """The output of `taillab budget --json` and `taillab reproduce time-gone --json`, and `budget.json`."""

    command: Literal["budget", "reproduce"]
    """`budget`, or `reproduce` where it was called as `taillab reproduce time-gone`."""
    earlier: list[EarlierRow]
    """The table of the earlier study, with today's figures added."""
    hypervisor: str | None
    """The hypervisor, where there is one."""
    kernel: str | None
    """Release of the kernel, where it is known."""
    notes: list[str]
    """The limitations of the figures, in a sentence each."""
    partial: bool
    """It was interrupted: rows and topologies are missing."""
    rows: list[BudgetRow]
    """The paper's rows, in its order."""
    schema_version: Literal[1]
    """Version of this shape: `SCHEMA_VERSION`."""
    started_unix_s: int
    """When it began, in seconds since 1970."""
    taillab_version: str
    """Version of taillab."""
    topologies: list[Topology]
    """Round trips through networks, computed from these rows and stated constants."""


class NoiseReport(Record):
    """The output of `taillab noise --json`, and `noise.json`."""

    clock: TscClock
    """The clock that was read."""
    command: Literal["noise"]
    """Always `noise`."""
    comparison: list[str]
    """How the loops compare with each other, in a sentence each."""
    held: list[str]
    """What the measurement held or changed while it ran; empty if nothing."""
    hypervisor: str | None
    """The hypervisor, where there is one."""
    kernel: str | None
    """Release of the kernel, where it is known."""
    notes: list[str]
    """What limits or biases the figures, in a sentence each."""
    partial: bool
    """It was interrupted: the figures are of the time until then."""
    quota: NoiseQuota | None
    """The limit on CPU time that a control group puts on the loops; `null` without one."""
    rows: list[NoiseRow]
    """One for each loop and CPU, in the order in which they ran."""
    schema_version: Literal[1]
    """Version of this shape: `SCHEMA_VERSION`."""
    started_unix_s: int
    """When it began, in seconds since 1970."""
    taillab_version: str
    """Version of taillab."""


CAUSE_LABELS: dict[str, str] = {
    "stack_rx": "stack, receiving",
    "queue": "ideal queueing",
    "service": "ideal service",
    "stack_tx": "stack, sending",
    "background": "other threads on the core",
    "irq": "interrupts",
    "softirq": "softirqs",
    "own_threads": "own threads compete",
    "order": "served out of order",
    "imbalance": "imbalance of workers",
    "idle_exit": "leaving idle",
    "wakeup": "wake-up",
    "blocked_lock": "blocked on a lock",
    "blocked_fault": "blocked in a page fault",
    "blocked_io": "blocked on storage",
    "blocked_other": "blocked",
    "upstream": "waiting for an upstream",
    "client": "waiting for the client",
    "pause": "pauses of the whole server",
    "throttled": "throttled",
    "slow_service": "slow service",
    "slow_cpu": "slow CPU",
    "retransmit": "retransmission",
    "hypervisor": "hypervisor",
    "unobserved": "not observed",
    "unexplained": "unexplained",
}
"""What people read for each cause."""
