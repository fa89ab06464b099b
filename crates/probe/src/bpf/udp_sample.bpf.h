/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * T2, T4 and T5 of a sample of datagrams.
 *
 * T2 finds the datagram at the end of its socket's queue and so knows its key. A read does not
 * say which datagram it gave, but how many are left in the queue: so T2 notes for the last
 * datagrams of a socket, by their number, which are asked for, and the one that was read is
 * as far from the last one as the queue is long. That needs no count of the reads, and goes wrong
 * for no longer than a datagram that was not counted is in the queue. From the read of a
 * datagram that is asked for until its response, the thread's writes are stamped.
 *
 * The sockets that come here are the server's.
 */

/* datagrams that a socket's queue may hold: those beyond have no T4 */
#define QUEUED 4096
#define SOCKETS 64

struct queue {
	u64 socket; /* 0: nobody's */
	u64 count; /* datagrams that have been queued */
	u64 read; /* the number of the datagram that was read last */
	u64 asked[QUEUED / 64]; /* by their number */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, struct queue);
	__uint(max_entries, SOCKETS);
} queues SEC(".maps");

/* A later socket may take another one's place over. */
static __always_inline struct queue *queue_of(const struct sock *sk)
{
	/* as packet_id: kernel addresses are no numbers */
	u64 socket = ((u64)sk - (u64)&config) >> 6;
	u32 index = (u32)socket * 0x9e3779b1U >> 26;
	struct queue *queue = bpf_map_lookup_elem(&queues, &index);

	if (queue && queue->socket != socket) {
		queue->socket = socket;
		queue->count = 0;
		queue->read = 0;
	}
	return queue;
}

/* the key of the datagram at the end of a socket's queue; 0: another CPU has taken it */
static __always_inline u32 last_queued(const struct sock *sk, u8 *address)
{
	const struct sk_buff *skb = sk->sk_receive_queue.prev;
	const unsigned char *transport, *ip;

	if ((const void *)skb == (const void *)&sk->sk_receive_queue)
		return 0;
	transport = skb->head + skb->transport_header;
	ip = skb->head + skb->network_header;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		*address = hash_of_ipv4(u32_at(ip + 12));
	else
		*address = hash_of_ipv6(u32_at(ip + 8), u32_at(ip + 12), u32_at(ip + 16),
					u32_at(ip + 20));
	return datagram_key(bpf_ntohs(u16_at(transport)), transport, id_bytes(transport));
}

static __always_inline void note_asked(struct queue *queue, u64 number, bool asked)
{
	u64 *word = &queue->asked[number / 64 % (QUEUED / 64)];
	u64 bit = 1ULL << (number & 63);

	if (asked)
		__sync_fetch_and_or(word, bit);
	else if (*word & bit)
		__sync_fetch_and_and(word, ~bit);
}

static __always_inline void note_queued(const struct sock *sk)
{
	u64 number, counted;
	struct queue *queue;
	u8 address = 0;
	bool asked;
	u32 key;

	queue = queue_of(sk);
	if (!queue)
		return;
	key = last_queued(sk, &address);
	asked = key && is_asked(address, key);
	/* all of it before the datagram is counted: a reader on another CPU looks as soon as it is */
	if (asked)
		emit_now(DATAGRAM_QUEUED, address, 0, key);
	number = *(volatile u64 *)&queue->count + 1;
	note_asked(queue, number, asked);
	counted = __sync_fetch_and_add(&queue->count, 1) + 1;
	if (counted != number)
		note_asked(queue, counted, asked);
}

/* datagrams that wait at a socket */
static __always_inline u32 waiting(const struct sock *sk)
{
	const struct udp_sock *udp = (const void *)sk;
	u32 taken = 0;

	/* those that a reader has taken over at once, to give them out one by one */
	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		udp = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct udp_sock));
		taken = udp->reader_queue.qlen;
	} else {
		bpf_probe_read_kernel(&taken, sizeof(taken), &udp->reader_queue.qlen);
	}
	return sk->sk_receive_queue.qlen + taken;
}

/*
 * Which threads have read datagrams that are asked for and have not answered them: how many,
 * and above that how many others they have read since. Threads whose numbers are equal modulo
 * THREADS_OPEN share a place, which costs only time.
 */
#define THREADS_OPEN 4096
#define OTHERS 256
#define OTHERS_MOST (64 * OTHERS)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, u32);
	__uint(max_entries, THREADS_OPEN);
} open_reads SEC(".maps");

static __always_inline u32 *open_of(u32 tid)
{
	u32 index = tid % THREADS_OPEN;

	return bpf_map_lookup_elem(&open_reads, &index);
}

static __always_inline void has_read(u32 tid, bool asked)
{
	u32 *open = open_of(tid);

	if (!open)
		return;
	if (*open >= OTHERS_MOST)
		/* what has not been answered for so long will not be */
		*open = asked;
	else if (asked)
		*open += (*open & 0xff) < 0xff;
	else if (*open)
		*open += OTHERS;
}

static __always_inline void has_answered(u32 tid)
{
	u32 *open = open_of(tid);

	if (open && *open & 0xff)
		*open = (*open & 0xff) > 1 ? *open - 1 : 0;
}

/*
 * The number of the datagram that was read, and how many are left. While a datagram is being
 * queued, the count and the queue's length do not fit each other: either the count changes between
 * two looks, or the number is that of the datagram that was read before. Then look again; some hundred looks
 * take as long as T2 may.
 */
#define LOOKS 512

static __always_inline u64 number_read(struct queue *queue, const struct sock *sk, u32 *left)
{
	u64 count, number;
	u32 i;

	for (i = 0; i < LOOKS; i++) {
		count = *(volatile u64 *)&queue->count;
		*left = waiting(sk);
		number = count - *left;
		if (*(volatile u64 *)&queue->count == count && number != queue->read)
			break;
	}
	queue->read = number;
	return number;
}

static __always_inline void note_read(const struct sock *sk, int ret)
{
	struct queue *queue;
	u64 number;
	bool asked;
	u32 left;

	queue = queue_of(sk);
	if (!queue)
		return;
	number = number_read(queue, sk, &left);
	asked = left < QUEUED && queue->asked[number / 64 % (QUEUED / 64)] >> (number & 63) & 1;
	has_read(bpf_get_current_pid_tgid(), asked);
	if (asked)
		emit_call(READ_RETURNED, ret);
}
