/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The stamps of a server of TCP streams, each with the key of its request:
 * client's port << 16 | low 16 bits of the sequence number after a request's end.
 */
#include "common.bpf.h"

#define TCP_BYTES 20
#define FLAG_SYN 0x02
#define FLAG_PSH 0x08

/* the first value of an event, as in taillab_model::PackedEvent */
#define PUSHED (1U << 31)
#define RESENT (1U << 31)
#define MORE (1U << 30)
#define TID_BITS 22

/* what a segment's headers say */
struct segment {
	u16 client_port;
	u16 flags; /* of TCP, in the high byte */
	u32 bytes; /* of payload */
	u32 seq;
};

#define TCP_IN_PLACE(at) \
	((const struct tcphdr *)bpf_rdonly_cast(at, bpf_core_type_id_kernel(struct tcphdr)))

/* the words of an IPv4 and of a TCP header that are needed, as they lie in memory */
struct tcp_words {
	u16 source;
	u16 destination;
	u32 seq;
	u32 ack;
	u16 offset_flags;
};

static __always_inline bool read_tcp(const unsigned char *tcp, struct tcp_words *words)
{
	if (!bpf_ksym_exists(bpf_rdonly_cast))
		return !bpf_probe_read_kernel(words, 14, tcp);
	words->source = TCP_IN_PLACE(tcp)->source;
	words->destination = TCP_IN_PLACE(tcp)->dest;
	words->seq = TCP_IN_PLACE(tcp)->seq;
	words->offset_flags = IN_PLACE(tcp + 12)->source;
	return true;
}

/* Reads the headers at `ip`, of which `linear` bytes may be read. */
static __always_inline enum verdict read_segment(const unsigned char *ip, u32 linear, bool incoming,
						 struct segment *segment)
{
	/* set to nothing: the verifier follows what compilers copy unused */
	struct tcp_words tcp = {};
	struct ip_words words = {};
	u32 header, headers, total;

	if (linear < IP_BYTES || !read_ip(ip, &words))
		return UNREADABLE;
	if (words.ttl_protocol >> 8 != IPPROTO_TCP || words.fragment & bpf_htons(IP_OFFSET))
		return OTHER;
	header = (words.version_ihl_tos & 0xf) * 4;
	if (header < IP_BYTES || linear < header + TCP_BYTES || !read_tcp(ip + header, &tcp))
		return UNREADABLE;
	if (bpf_ntohs(incoming ? tcp.destination : tcp.source) != config.port)
		return OTHER;
	if (bpf_ksym_exists(bpf_rdonly_cast))
		words.total_length = IN_PLACE(ip)->dest;
	total = bpf_ntohs(words.total_length);
	headers = header + (tcp.offset_flags >> 4 & 0xf) * 4;
	segment->client_port = bpf_ntohs(incoming ? tcp.source : tcp.destination);
	segment->flags = tcp.offset_flags >> 8;
	segment->bytes = total > headers ? total - headers : 0;
	segment->seq = bpf_ntohl(tcp.seq);
	return OURS;
}

static __always_inline u32 stream_key(u16 client_port, u32 sequence)
{
	return (u32)client_port << 16 | (u16)sequence;
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

/* T1: veth and loopback hand the segment to the receiving device, before RPS */
SEC("tp_btf/netif_rx")
int BPF_PROG(segment_in, struct sk_buff *skb)
{
	struct segment segment = {};
	enum verdict verdict;
	struct ring *ring;
	u32 cpu, end;

	if (!at_server(skb->dev) || skb->protocol != bpf_htons(ETH_P_IP))
		return 0;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (!ring)
		return 0;
	verdict = read_segment(skb->data, skb->len - skb->data_len, true, &segment);
	if (verdict == UNREADABLE)
		__sync_fetch_and_add(&ring->unreadable, 1);
	if (verdict != OURS)
		return 0;
	end = segment.seq + segment.bytes;
	if (segment.flags & FLAG_SYN) {
		/* the stream begins behind it */
		end = segment.seq + 1;
		segment.bytes = 0;
	} else if (!segment.bytes) {
		return 0;
	}
	emit(cpu, ring, bpf_ktime_get_ns(), SEGMENT_IN,
	     segment.bytes | (segment.flags & FLAG_PSH ? PUSHED : 0),
	     stream_key(segment.client_port, end));
	return 0;
}

/* An established TCP connection of the server: the port of its client, else 0. */
static __always_inline u16 client_of(const struct sock *sk)
{
	if (sk->__sk_common.skc_num != config.port || sk->sk_protocol != IPPROTO_TCP ||
	    sk->__sk_common.skc_net.net->ns.inum != config.netns_inode)
		return 0;
	/* a listening socket has none */
	return bpf_ntohs(sk->__sk_common.skc_dport);
}

static __always_inline void emit_segment_queued(const struct sock *sk)
{
	u16 client = client_of(sk);
	struct ring *ring;
	u32 cpu;

	if (!client)
		return;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (ring)
		emit(cpu, ring, bpf_ktime_get_ns(), SEGMENT_QUEUED, 0,
		     stream_key(client, TCP_NUMBER(sk, rcv_nxt)));
}

/* T2: TCP has queued data, in softirq or from the backlog, and is about to wake the reader */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(segment_queued, const struct sock *sk)
{
	emit_segment_queued(sk);
	return 0;
}

/* T2 where sk_data_ready does not exist: the function that calls it since. */
SEC("fentry/sock_def_readable")
int BPF_PROG(to_wake_stream_reader, const struct sock *sk)
{
	emit_segment_queued(sk);
	return 0;
}

/* T4: a socket of the server has given data */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(segment_read, struct sock *sk, int ret, int flags)
{
	struct ring *ring;
	u16 client;
	u32 cpu;

	if (ret <= 0 || flags & MSG_PEEK)
		return 0;
	client = client_of(sk);
	if (!client)
		return 0;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (ring)
		emit(cpu, ring, bpf_ktime_get_ns(), SEGMENT_READ,
		     (u32)ret << TID_BITS | (u32)bpf_get_current_pid_tgid(),
		     stream_key(client, TCP_NUMBER(sk, copied_seq)));
	return 0;
}

/* T4 where sock_recv_length does not exist: which connection it was is not known */
SEC("tp_btf/sys_exit")
int BPF_PROG(stream_read_returned, struct pt_regs *regs, long ret)
{
	u64 nr;

	if (ret <= 0)
		return 0;
	nr = regs->orig_ax;
	if (nr == NR_READ || nr == NR_RECVFROM || nr == NR_READV || nr == NR_RECVMSG)
		emit_for_server(READ_RETURNED, ret);
	return 0;
}

/* T5: the server calls a write, of whatever file: the last one before T6 counts */
SEC("tp_btf/sys_enter")
int BPF_PROG(stream_write_called, struct pt_regs *regs, long nr)
{
	if (nr == NR_WRITE || nr == NR_WRITEV || nr == NR_SENDMSG || nr == NR_SENDTO ||
	    nr == NR_SENDFILE || nr == NR_SPLICE || nr == NR_SENDMMSG)
		emit_for_server(WRITE_CALLED, 0);
	return 0;
}

/*
 * T6: the driver takes a segment of a response. Its socket, which no acknowledgement
 * of the client's can change meanwhile, says what the server had read by now: that is
 * never later than the acknowledgement number in the segment, and tells requests apart
 * that were received, but not read.
 */
SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(segment_out, const struct sk_buff *skb, const struct net_device *dev)
{
	const unsigned char *ip;
	struct segment segment = {};
	enum verdict verdict;
	const struct sock *sk;
	struct ring *ring;
	u32 cpu, linear, a;
	u64 now;

	if (!at_server(dev) || skb->protocol != bpf_htons(ETH_P_IP))
		return 0;
	/* the clock first: the sojourn ends before this program's work */
	now = bpf_ktime_get_ns();
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (!ring)
		return 0;
	/* skb->data is at the link-layer header, of whatever length */
	ip = skb->head + skb->network_header;
	linear = skb->len - skb->data_len - (u32)(ip - skb->data);
	verdict = read_segment(ip, linear, false, &segment);
	sk = skb->sk;
	/* a packet that a socket of the server sends always has it */
	if (verdict == UNREADABLE || (verdict == OURS && segment.bytes && !sk))
		__sync_fetch_and_add(&ring->unreadable, 1);
	if (verdict != OURS || !segment.bytes || !sk)
		return 0;
	a = (u32)bpf_get_current_pid_tgid();
	if (segment.seq + segment.bytes != TCP_NUMBER(sk, write_seq))
		a |= MORE;
	if ((s32)(segment.seq - TCP_NUMBER(sk, snd_nxt)) < 0)
		a |= RESENT;
	emit(cpu, ring, now, SEGMENT_OUT, a,
	     stream_key(segment.client_port, TCP_NUMBER(sk, copied_seq)));
	return 0;
}
