/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The stamps of a server of TCP streams, each with the number of its connection, and the low 16 bits of the sequence
 * number after a request's end.
 */
#include "packet.bpf.h"
#include "upstream.bpf.h"

#define TCP_BYTES 20
#define FLAG_SYN 0x02
#define FLAG_PSH 0x08

/* the first value of an event, as in taillab_model::PackedEvent */
#define PUSHED (1U << 31)
#define RESENT (1U << 31)
#define MORE (1U << 30)
#define CONGESTION_WINDOW (1U << 29)
#define CLIENT_WINDOW (1U << 28)
#define RESPONSE 0x80

/* what a segment's headers say */
struct segment {
	struct client client;
	u8 flags; /* of TCP */
	u32 bytes; /* of payload */
	u32 seq;
	u32 headers; /* bytes of the TCP header */
	const unsigned char *transport;
};

static __always_inline enum verdict read_segment(struct place place, bool incoming,
						 struct segment *segment)
{
	struct headers headers = {};
	enum verdict verdict;
	u16 offset_flags;
	u32 own;

	verdict = read_headers(place, IPPROTO_TCP, incoming, &headers);
	if (verdict != OURS)
		return verdict;
	if (headers.linear < TCP_BYTES)
		return UNREADABLE;
	offset_flags = u16_at(headers.transport + 12);
	own = (offset_flags >> 4 & 0xf) * 4;
	segment->client = headers.client;
	segment->flags = offset_flags >> 8;
	segment->bytes = headers.bytes > own ? headers.bytes - own : 0;
	segment->seq = bpf_ntohl(u32_at(headers.transport + 4));
	segment->headers = own;
	segment->transport = headers.transport;
	return OURS;
}

/* Numbers of a TCP socket; `sk` is one of those, and not a listening one. */
#define TCP_NUMBER(sk, member)                                                             \
	({                                                                                 \
		u32 number_ = 0;                                                           \
		if (bpf_ksym_exists(bpf_rdonly_cast))                                      \
			number_ = ((const struct tcp_sock *)bpf_rdonly_cast(               \
					   sk, bpf_core_type_id_kernel(struct tcp_sock)))  \
					  ->member;                                        \
		else                                                                       \
			bpf_probe_read_kernel(&number_, sizeof(number_),                   \
					      &((const struct tcp_sock *)(sk))->member);   \
		number_;                                                                   \
	})

/* The same for numbers of a few bits. */
#define TCP_BITS(sk, member)                                                               \
	({                                                                                 \
		const struct tcp_sock *tcp_ = (const struct tcp_sock *)(sk);               \
		u64 bits_;                                                                 \
		if (bpf_ksym_exists(bpf_rdonly_cast)) {                                    \
			tcp_ = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock)); \
			bits_ = BPF_CORE_READ_BITFIELD(tcp_, member);                      \
		} else {                                                                   \
			bits_ = BPF_CORE_READ_BITFIELD_PROBED(tcp_, member);               \
		}                                                                          \
		bits_;                                                                     \
	})

#define TCP_CHRONO_RWND_LIMITED 2 /* enum tcp_chrono of include/linux/tcp.h */

#define SEND_SHUTDOWN 2

/* of enum in net/tcp_states.h: those in which the client's end has come */
#define CLIENT_ENDED (1 << 8 /* CLOSE_WAIT */ | 1 << 9 /* LAST_ACK */ | 1 << 11 /* CLOSING */)

/* sk_shutdown does not say it: a server that closes does not want to receive either */
static __always_inline bool client_has_ended(const struct sock *sk)
{
	return 1 << (sk->__sk_common.skc_state & 15) & CLIENT_ENDED;
}

/*
 * How far the client's stream has come in, or been read, without the place that its end (FIN) takes behind it.
 */
static __always_inline u32 queued_upto(const struct sock *sk)
{
	return TCP_NUMBER(sk, rcv_nxt) - client_has_ended(sk);
}

static __always_inline u32 read_upto(const struct sock *sk)
{
	u32 read = TCP_NUMBER(sk, copied_seq);

	return client_has_ended(sk) && read == TCP_NUMBER(sk, rcv_nxt) ? read - 1 : read;
}

/*
 * Records a segment's payload, right after its own event and on the same CPU: first its length and
 * its place in the stream, then its beginning, which is `offset` bytes after skb->data.
 */
static __always_inline void emit_payload(u32 cpu, struct ring *ring, u64 now, struct sk_buff *skb,
					 u32 offset, const struct segment *segment, u8 response)
{
	u64 piece[PAYLOAD_PIECE / 8] = {};
	struct bpf_dynptr packet;
	u32 n, done, limit = config.payload_bytes;
	int p, i;

	/* without room for one piece, none after it: what is recorded is the beginning, without a hole */
	if (!emit(cpu, ring, now, PAYLOAD, response, segment->bytes, segment->seq))
		return;
	if (!config.payload_copied || !bpf_ksym_exists(bpf_dynptr_from_skb))
		return;
	if (segment->bytes < limit)
		limit = segment->bytes;
	if (bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &packet))
		return;
	/* an iterator (Linux 6.4): the verifier would need seconds for a plain loop */
	bpf_for(p, 0, MAX_PAYLOAD / PAYLOAD_PIECE) {
		done = p * PAYLOAD_PIECE;
		if (done >= limit)
			break;
		n = limit - done;
		if (n > PAYLOAD_PIECE)
			n = PAYLOAD_PIECE;
		/* the verifier wants to see the bounds */
		barrier_var(n);
		if (n < 1 || n > PAYLOAD_PIECE)
			break;
		if (bpf_dynptr_read(piece, n, &packet, offset + done, 0))
			break;
		bpf_for(i, 0, PAYLOAD_PIECE / 8) {
			if (8 * i >= n)
				break;
			if (!emit(cpu, ring, now, PAYLOAD,
				  response | (n - 8 * i > 8 ? 8 : n - 8 * i), piece[i],
				  piece[i] >> 32))
				return;
		}
	}
}

static __always_inline int stream_in(struct sk_buff *skb, struct place place)
{
	struct segment segment = {};
	enum verdict verdict;
	struct ring *ring;
	u32 cpu, end, connection;
	bool opens;
	u64 now;

	verdict = read_segment(place, true, &segment);
	if (verdict == OTHER)
		return 0;
	opens = verdict == OURS && segment.flags & FLAG_SYN;
	/* the stream begins behind it */
	segment.seq += opens;
	end = segment.seq + segment.bytes;
	if (verdict == OURS && !opens && !segment.bytes)
		return 0;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (!ring)
		return 0;
	if (verdict == UNREADABLE) {
		__sync_fetch_and_add(&ring->unreadable, 1);
		return 0;
	}
	connection = connection_of(ring, 0, &segment.client);
	now = bpf_ktime_get_ns();
	if (opens)
		emit_of(cpu, ring, now, SEGMENT_IN, connection, 0, segment.seq);
	/* it may bring the first request with it (TCP Fast Open), without a push */
	if (!segment.bytes)
		return 0;
	emit_of(cpu, ring, now, SEGMENT_IN, connection,
		segment.bytes | (opens || segment.flags & FLAG_PSH ? PUSHED : 0), end);
	if (config.payload_bytes)
		emit_payload(cpu, ring, now, skb,
			     place.before + (u32)(segment.transport - place.ip) + segment.headers, &segment, 0);
	return 0;
}

ARRIVALS(segment_in, stream_in)

/* Whether a socket is an established TCP connection of the server. */
static __always_inline bool is_connection(const struct sock *sk)
{
	/* a listening socket has no client */
	return is_servers_socket(sk, IPPROTO_TCP) && sk->__sk_common.skc_dport;
}

/* an event of a connection, now */
static __always_inline void emit_of_socket(struct ring *ring, const struct sock *sk, u64 kind, u32 a,
					   u16 id)
{
	struct client client = client_of(sk);
	u32 connection = connection_of(ring, 0, &client);

	emit_of(bpf_get_smp_processor_id(), ring, bpf_ktime_get_ns(), kind, connection, a, id);
}

static __always_inline void emit_now_of_socket(const struct sock *sk, u64 kind, u32 a, u16 id)
{
	struct ring *ring = this_ring(bpf_get_smp_processor_id());

	if (ring)
		emit_of_socket(ring, sk, kind, a, id);
}

static __always_inline void emit_segment_queued(struct ring *ring, const struct sock *sk)
{
	if (is_connection(sk))
		emit_of_socket(ring, sk, SEGMENT_QUEUED, 0, queued_upto(sk));
	else
		emit_answer(ring, sk);
}

/*
 * The kernel does not run a program on top of itself. TCP queues what comes while a socket is
 * locked when it is unlocked, with interrupts on: while that is stamped, a softirq can queue
 * data of another socket. So two programs follow each other, and the second one stamps what
 * the first one has not. (Between the two a softirq's stamp can make a stamp be repeated.)
 */
static __always_inline int first_stamp(const struct sock *sk)
{
	struct ring *ring = this_ring(bpf_get_smp_processor_id());

	if (ring) {
		emit_segment_queued(ring, sk);
		barrier();
		*(volatile u64 *)&ring->queued = socket_id(sk);
	}
	return 0;
}

static __always_inline int second_stamp(const struct sock *sk)
{
	struct ring *ring = this_ring(bpf_get_smp_processor_id());

	if (!ring)
		return 0;
	if (*(volatile u64 *)&ring->queued != socket_id(sk))
		emit_segment_queued(ring, sk);
	else
		*(volatile u64 *)&ring->queued = 0;
	return 0;
}

/* T2: TCP has queued data, in a softirq or from the backlog, and is about to wake the reader */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(segment_queued, const struct sock *sk)
{
	return first_stamp(sk);
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(segment_queued_upon, const struct sock *sk)
{
	return second_stamp(sk);
}

/* T2 where sk_data_ready does not exist: the function that has it in later kernels */
SEC("fentry/sock_def_readable")
int BPF_PROG(to_wake_stream_reader, const struct sock *sk)
{
	return first_stamp(sk);
}

SEC("fentry/sock_def_readable")
int BPF_PROG(to_wake_stream_reader_upon, const struct sock *sk)
{
	return second_stamp(sk);
}

static __always_inline int emit_segment_read(const struct sock *sk, int ret, int flags)
{
	if (ret <= 0 || flags & MSG_PEEK)
		return 0;
	if (config.other_count && in_others(bpf_get_current_task_btf()))
		return 0;
	if (is_connection(sk))
		emit_now_of_socket(sk, SEGMENT_READ,
				   (u32)ret << TID_BITS | (u32)bpf_get_current_pid_tgid(),
				   read_upto(sk));
	return 0;
}

/*
 * Another process that shares the port has read from a socket: its requests are not the server's. As
 * taillab_model::PackedEvent has it, the top bit tells this from a write.
 */
#define READ_BY_OTHER (1U << 31)

static __always_inline int emit_read_by_other(const struct sock *sk, int ret)
{
	if (ret <= 0 || !in_others(bpf_get_current_task_btf()))
		return 0;
	if (is_connection(sk))
		emit_now_of_socket(sk, WRITE_CALLED,
				   READ_BY_OTHER | (u32)bpf_get_current_pid_tgid(), 0);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(read_by_other, struct sock *sk, int ret, int flags)
{
	return emit_read_by_other(sk, ret);
}

SEC("fexit/tcp_recvmsg")
int BPF_PROG(read_from_tcp_by_other, struct sock *sk, void *msg, u64 len, int flags)
{
	u64 ret = 0;

	return bpf_get_func_ret(ctx, &ret) ? 0 : emit_read_by_other(sk, (int)ret);
}

/* T4: a socket of the server has given data */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(segment_read, struct sock *sk, int ret, int flags)
{
	return emit_segment_read(sk, ret, flags);
}

/* T4 where sock_recv_length does not exist */
SEC("fexit/tcp_recvmsg")
int BPF_PROG(read_from_tcp, struct sock *sk, void *msg, u64 len, int flags)
{
	u64 ret = 0;

	/* which argument it is differs between kernels */
	if (bpf_get_func_ret(ctx, &ret))
		return 0;
	return emit_segment_read(sk, (int)ret, flags);
}

/* T4 where neither is allowed: which connection it was is not known */
SEC("tp_btf/sys_exit")
int BPF_PROG(stream_read_returned, struct pt_regs *regs, long ret)
{
	u64 nr;

	if (ret <= 0)
		return 0;
	nr = regs->orig_ax;
	if ((nr == NR_READ || nr == NR_RECVFROM || nr == NR_READV || nr == NR_RECVMSG) &&
	    !in_32_bit_call(bpf_get_current_task_btf()))
		emit_for_server(READ_RETURNED, 0, ret);
	return 0;
}

/* `left` is how many bytes the call has yet to write */
static __always_inline int emit_segment_written(const struct sock *sk, u64 left)
{
	struct ring *ring;
	u64 write;

	if (!is_connection(sk)) {
		note_question(sk);
		return 0;
	}
	if (config.other_count && in_others(bpf_get_current_task_btf()))
		return 0;
	ring = this_ring(bpf_get_smp_processor_id());
	if (!ring)
		return 0;
	/*
	 * One call passes here for each packet that it fills, and always ends at the same place.
	 * The socket's address is counted as those of packets, see packet_id.
	 */
	write = ((u64)sk - (u64)&config) >> 6 << 32 | (u32)(TCP_NUMBER(sk, write_seq) + left);
	if (ring->write == write)
		return 0;
	ring->write = write;
	emit_of_socket(ring, sk, SEGMENT_WRITTEN, (u32)bpf_get_current_pid_tgid(), read_upto(sk));
	return 0;
}

/*
 * T5: the server writes to a connection, by whatever call, sendfile, splice and io_uring
 * included. It costs nothing in the server's other system calls.
 */
SEC("fentry/tcp_sendmsg")
int BPF_PROG(write_to_tcp, struct sock *sk, void *msg, u64 size)
{
	return emit_segment_written(sk, size);
}

/* called by sendfile and splice before Linux 6.5 */
SEC("fentry/tcp_sendpage")
int BPF_PROG(page_to_tcp, struct sock *sk, void *page, int offset, u64 size)
{
	return emit_segment_written(sk, size);
}

/* T5 where fentry is not allowed, since Linux 6.16: as soon as the socket is locked */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(stream_write_begun, const struct sock *sk, const struct msghdr *msg)
{
	return emit_segment_written(sk, msg->msg_iter.count);
}

/* T5 where neither is allowed: any write to any file; the last one before T6 counts */
SEC("tp_btf/sys_enter")
int BPF_PROG(stream_write_called, struct pt_regs *regs, long nr)
{
	if ((nr == NR_WRITE || nr == NR_WRITEV || nr == NR_SENDMSG || nr == NR_SENDTO ||
	     nr == NR_SENDFILE || nr == NR_SPLICE || nr == NR_SENDMMSG) &&
	    !in_32_bit_call(bpf_get_current_task_btf()))
		emit_for_server(WRITE_CALLED, 0, 0);
	return 0;
}

/*
 * Notes that a segment was handed down to a device's queue; returns whether it is a new one. What is sent again before
 * it was seen to leave was dropped there: it leaves now, under its old number.
 */
static __always_inline bool note_waiting(const struct sock *sk, const struct segment *segment,
					 u32 number)
{
	struct waiting_segment here = { segment->seq, segment->seq + segment->bytes, number };
	u64 id = socket_id(sk);
	struct waiting_segments *waiting = bpf_map_lookup_elem(&waiting_segments, &id);
	u32 i;

	if (!waiting) {
		struct waiting_segments none = {};

		bpf_map_update_elem(&waiting_segments, &id, &none, BPF_ANY);
		waiting = bpf_map_lookup_elem(&waiting_segments, &id);
		if (!waiting)
			return false;
	}
	for (i = 0; i < MOST_OF_SOCKET; i++)
		if (waiting->of[i].end == here.end && waiting->of[i].seq == here.seq)
			return false;
	/* its socket is locked */
	waiting->of[waiting->next++ % MOST_OF_SOCKET] = here;
	return true;
}

/*
 * Whether the server has written more to the stream than up to `end`. The end of its stream (FIN) takes a place behind
 * what it wrote, and may leave in the segment of the last response.
 */
static __always_inline bool more_is_written(const struct sock *sk, u32 end)
{
	u32 left = TCP_NUMBER(sk, write_seq) - end;

	return left && !(left == 1 && sk->sk_shutdown & SEND_SHUTDOWN);
}

/*
 * What TCP had waited for before this segment, as its socket still says while it leaves (tcp_write_xmit of
 * net/ipv4/tcp_output.c). A full send buffer hides that the client's window is full (tcp_chrono_start).
 */
static __always_inline u32 send_limit(const struct sock *sk)
{
	if (TCP_BITS(sk, chrono_type) == TCP_CHRONO_RWND_LIMITED)
		return CLIENT_WINDOW;
	return TCP_BITS(sk, is_cwnd_limited) ? CONGESTION_WINDOW : 0;
}

/*
 * A segment of a response leaves. Its socket says how far the server has read by now; no
 * acknowledgement of the client can change that meanwhile. It is never beyond the acknowledgement
 * number in the segment, and it separates requests that were received but not yet read.
 *
 * That TCP has sent up to snd_nxt does not show that a segment before it was sent before: it may have
 * waited for its neighbour's address. But then TCP has not sent anything again.
 */
static __always_inline int stream_out(struct sk_buff *skb, const struct net_device *dev)
{
	struct segment segment = {};
	enum verdict verdict;
	const struct sock *sk;
	struct place place;
	struct ring *ring;
	u32 cpu, a, connection;
	u64 now;

	if (!may_be_ip(skb->protocol) || !at_server(dev))
		return 0;
	/* the clock first: the sojourn ends before this program's work */
	now = bpf_ktime_get_ns();
	place = place_out(skb);
	verdict = read_segment(place, false, &segment);
	if (verdict == OTHER || (verdict == OURS && !segment.bytes))
		return 0;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (!ring)
		return 0;
	sk = skb->sk;
	/* it came in: this machine passes it on for a server elsewhere that has the same port */
	if (!sk && skb->skb_iif)
		return 0;
	/* a packet that a socket of the server sends always has it */
	if (verdict == UNREADABLE || !sk) {
		__sync_fetch_and_add(&ring->unreadable, 1);
		return 0;
	}
	connection = connection_of(ring, now, &segment.client);
	if (config.queues && holds_back(dev) && note_waiting(sk, &segment, number_at(now)))
		emit_of(cpu, ring, now, DEVICE_QUEUE, connection, number_at(now), 0);
	a = (u32)bpf_get_current_pid_tgid();
	if (more_is_written(sk, segment.seq + segment.bytes))
		a |= MORE;
	if ((s32)(segment.seq - TCP_NUMBER(sk, snd_nxt)) < 0 && TCP_NUMBER(sk, total_retrans))
		a |= RESENT;
	a |= send_limit(sk);
	emit_of(cpu, ring, now, SEGMENT_OUT, connection, a, read_upto(sk));
	if (config.payload_bytes) {
		/* counted from the stream's beginning, so that a lost first packet shows */
		segment.seq -= TCP_NUMBER(sk, snd_una) - TCP_NUMBER(sk, bytes_acked);
		emit_payload(cpu, ring, now, skb,
			     (u32)(segment.transport - skb->data) + segment.headers, &segment,
			     RESPONSE);
	}
	return 0;
}

/* T6 where nothing holds packets back: the driver takes a segment of a response */
SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(segment_out, struct sk_buff *skb, const struct net_device *dev)
{
	return stream_out(skb, dev);
}

/*
 * Where a queue may hold it back: TCP hands it down. By the time when the driver takes it, the server may
 * have read on and written more.
 */
SEC("tp_btf/net_dev_queue")
int BPF_PROG(segment_handed_down, struct sk_buff *skb)
{
	return stream_out(skb, skb->dev);
}

/* T6 then: the driver takes the end of what was handed down. */
SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(segment_left, struct sk_buff *skb, const struct net_device *dev)
{
	struct waiting_segments *waiting;
	struct segment segment = {};
	struct ring *ring;
	u32 i, cpu, end;
	u64 now, id;

	if (!may_be_ip(skb->protocol) || !holds_back(dev) || !at_server(dev))
		return 0;
	now = bpf_ktime_get_ns();
	if (read_segment(place_out(skb), false, &segment) != OURS || !segment.bytes || !skb->sk)
		return 0;
	id = socket_id(skb->sk);
	waiting = bpf_map_lookup_elem(&waiting_segments, &id);
	if (!waiting)
		return 0;
	end = segment.seq + segment.bytes;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	/* the oldest first */
	for (i = 0; i < MOST_OF_SOCKET; i++) {
		struct waiting_segment *one = &waiting->of[(waiting->next + i) % MOST_OF_SOCKET];

		if (one->end != end || end - segment.seq > end - one->seq)
			continue;
		if (ring)
			emit_of(cpu, ring, now, DEVICE_QUEUE,
				connection_of(ring, now, &segment.client), one->number | LEFT, 0);
		/* as if it had no bytes */
		one->seq = end;
		break;
	}
	return 0;
}

/* TCP of the server sends a segment again */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(retransmitted, const struct sock *sk)
{
	if (is_connection(sk))
		emit_now_of_socket(sk, RETRANSMITTED, 0, 0);
	return 0;
}
