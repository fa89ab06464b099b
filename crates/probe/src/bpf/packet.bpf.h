/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Headers of packets, and addresses of clients. */
#ifndef TAILLAB_PACKET_BPF_H
#define TAILLAB_PACKET_BPF_H

#include "connections.bpf.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define AF_INET 2
#define AF_INET6 10
#define MSG_PEEK 2
#define IP_OFFSET 0x1fff /* fragment offset bits of iphdr.frag_off */
#define IP_BYTES 20
#define IPV6_BYTES 40
#define IPV6_OFFSET 0xfff8 /* the same of IPv6's fragment header */

/* extension headers of IPv6 */
#define NEXT_HOP_BY_HOP 0
#define NEXT_ROUTING 43
#define NEXT_FRAGMENT 44
#define NEXT_DESTINATION 60

/* to read a 16-bit number: any kernel type that begins with one will do */
#define U16_IN_PLACE(at)                                                                   \
	(((const struct udphdr *)bpf_rdonly_cast(at, bpf_core_type_id_kernel(struct udphdr)))->source)

/* the same for a 32-bit number: any kernel type that has one at offset 4 */
#define U32_IN_PLACE(at)                                                                   \
	(((const struct tcphdr *)bpf_rdonly_cast((at) - 4, bpf_core_type_id_kernel(struct tcphdr))) \
		 ->seq)

/* a number in the packet's byte order; 0 if it cannot be read */
static __always_inline u16 u16_at(const unsigned char *at)
{
	u16 value = 0;

	if (bpf_ksym_exists(bpf_rdonly_cast))
		return U16_IN_PLACE(at);
	bpf_probe_read_kernel(&value, sizeof(value), at);
	return value;
}

static __always_inline u32 u32_at(const unsigned char *at)
{
	u32 value = 0;

	if (bpf_ksym_exists(bpf_rdonly_cast))
		return U32_IN_PLACE(at);
	bpf_probe_read_kernel(&value, sizeof(value), at);
	return value;
}

/* Whether the server, and not another one on the same port, has a local address. */
static __always_inline bool is_servers_address(u32 a, u32 b, u32 c, u32 d)
{
	u32 i;

	/* the verifier knows the count, and drops the comparisons beyond it */
	for (i = 0; i < MAX_ADDRESSES && i < config.address_count; i++)
		if (config.addresses[4 * i] == a && config.addresses[4 * i + 1] == b &&
		    config.addresses[4 * i + 2] == c && config.addresses[4 * i + 3] == d)
			return !config.addresses_left_out;
	return config.addresses_left_out;
}

static __always_inline bool is_servers_ipv4(__be32 address)
{
	return is_servers_address(0, 0, bpf_htonl(0xffff), address);
}

/* whether a socket is bound to an address of the server, or to none: that gets what no other socket gets */
static __always_inline bool has_servers_address(const struct sock *sk)
{
	const u32 *words;

	if (sk->__sk_common.skc_family == AF_INET)
		return is_servers_ipv4(sk->__sk_common.skc_rcv_saddr);
	words = sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32;
	return is_servers_address(words[0], words[1], words[2], words[3]);
}

/* Whether a socket has the server's port, transport, namespace and address. */
static __always_inline bool is_servers_socket(const struct sock *sk, u8 protocol)
{
	return sk->__sk_common.skc_num == config.port && sk->sk_protocol == protocol &&
	       sk->__sk_common.skc_net.net->ns.inum == config.netns_inode &&
	       (!config.address_count || has_servers_address(sk));
}

/* the other end of a connected socket */
static __always_inline struct client client_of(const struct sock *sk)
{
	struct client client = { .port = bpf_ntohs(sk->__sk_common.skc_dport) };
	const u32 *words;

	if (sk->__sk_common.skc_family == AF_INET) {
		set_ipv4(&client, sk->__sk_common.skc_daddr);
		return client;
	}
	words = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32;
	client.address[0] = words[0];
	client.address[1] = words[1];
	client.address[2] = words[2];
	client.address[3] = words[3];
	return client;
}

enum verdict {
	OTHER,
	OURS,
	UNREADABLE,
};

/* what the headers up to the ports say about a packet of the server */
struct headers {
	const unsigned char *transport; /* where its header begins */
	u32 linear; /* bytes that may be read from there */
	u32 bytes; /* from there, payload included */
	struct client client;
};

/* extension headers that are read, one behind the other */
#define MOST_EXTENSIONS 4

/*
 * The offset of the transport's header, behind the header of IPv6 and its extension headers.
 * Negative: another protocol, or a later fragment; 0: unknown.
 */
static __always_inline int behind_ipv6(const unsigned char *ip, u32 linear, u8 transport)
{
	u32 behind = IPV6_BYTES;
	u8 next = u16_at(ip + 6);
	u16 word;
	int i;

	if (next == transport)
		return behind;
	for (i = 0; i < MOST_EXTENSIONS; i++) {
		if (next != NEXT_HOP_BY_HOP && next != NEXT_ROUTING && next != NEXT_FRAGMENT &&
		    next != NEXT_DESTINATION)
			return -1;
		if (linear < behind + 8)
			return 0;
		word = u16_at(ip + behind);
		if (next == NEXT_FRAGMENT) {
			if (u16_at(ip + behind + 2) & bpf_htons(IPV6_OFFSET))
				return -1;
			word &= 0xff;
		}
		next = word;
		behind += 8 + (word >> 8) * 8;
		if (next == transport)
			return behind;
	}
	return 0;
}

#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define VLAN_BYTES 4

static __always_inline bool is_vlan(__be16 protocol)
{
	return protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD);
}

/* where a packet's IP header is, how much of it may be read, and how long it is from there */
struct place {
	const unsigned char *ip;
	u32 before; /* bytes of the packet before that */
	__be16 protocol;
	u32 linear;
	u32 whole;
};

/* Reads a packet's headers. A fragment other than the first has no ports. */
static __always_inline enum verdict read_headers(struct place place, u8 transport, bool incoming,
						 struct headers *headers)
{
	__be16 protocol = place.protocol;
	const unsigned char *client, *own, *ip = place.ip;
	u32 linear = place.linear;
	u32 header, total, word;
	int behind;
	u16 ours;

	/* several fields in one read, because each read is checked */
	if (is_vlan(protocol))
		return UNREADABLE;
	if (protocol != bpf_htons(ETH_P_IP) && protocol != bpf_htons(ETH_P_IPV6))
		return OTHER;
	if (protocol == bpf_htons(ETH_P_IP)) {
		if (linear < IP_BYTES)
			return UNREADABLE;
		word = u32_at(ip + 6);
		if (word >> 24 != transport || word & bpf_htons(IP_OFFSET))
			return OTHER;
		word = u32_at(ip);
		header = (word & 0xf) * 4;
		total = bpf_ntohs(word >> 16);
	} else {
		if (linear < IPV6_BYTES)
			return UNREADABLE;
		behind = behind_ipv6(ip, linear, transport);
		if (behind <= 0)
			return behind < 0 ? OTHER : UNREADABLE;
		header = behind;
		total = bpf_ntohs(u16_at(ip + 4));
		if (total)
			total += IPV6_BYTES;
	}
	/* 0: the length does not fit into 16 bits */
	if (!total)
		total = place.whole;
	if (header < IP_BYTES || linear < header + 4 || total < header)
		return UNREADABLE;
	word = u32_at(ip + header);
	ours = incoming ? word >> 16 : word;
	if (bpf_ntohs(ours) != config.port)
		return OTHER;
	headers->client.port = bpf_ntohs(incoming ? word : word >> 16);
	if (protocol == bpf_htons(ETH_P_IP)) {
		own = ip + (incoming ? 16 : 12);
		if (config.address_count && !is_servers_ipv4(u32_at(own)))
			return OTHER;
		set_ipv4(&headers->client, u32_at(ip + (incoming ? 12 : 16)));
	} else {
		own = ip + (incoming ? 24 : 8);
		if (config.address_count &&
		    !is_servers_address(u32_at(own), u32_at(own + 4), u32_at(own + 8),
					u32_at(own + 12)))
			return OTHER;
		client = ip + (incoming ? 8 : 24);
		headers->client.address[0] = u32_at(client);
		headers->client.address[1] = u32_at(client + 4);
		headers->client.address[2] = u32_at(client + 8);
		headers->client.address[3] = u32_at(client + 12);
	}
	headers->transport = ip + header;
	headers->linear = linear - header;
	headers->bytes = total - header;
	return OURS;
}

static __always_inline bool may_be_ip(__be16 protocol)
{
	return protocol == bpf_htons(ETH_P_IP) || protocol == bpf_htons(ETH_P_IPV6) ||
	       is_vlan(protocol);
}

/* Passes a VLAN's tag, which is in the packet where no hardware has taken it out. */
static __always_inline struct place behind_tag(struct place place)
{
	if (!is_vlan(place.protocol) || place.linear < VLAN_BYTES)
		return place;
	place.protocol = u16_at(place.ip + 2);
	place.ip += VLAN_BYTES;
	place.before = VLAN_BYTES;
	place.linear -= VLAN_BYTES;
	place.whole -= VLAN_BYTES;
	return place;
}

/* on the way in, skb->data is behind the link-layer header */
static __always_inline struct place place_in(const struct sk_buff *skb)
{
	struct place place = { .ip = skb->data,
			       .protocol = skb->protocol,
			       .linear = skb->len - skb->data_len,
			       .whole = skb->len };

	return behind_tag(place);
}

/* GRO of drivers that give pages keeps the bytes outside the skb, without the link-layer header */
static __always_inline struct place place_in_frags(const struct sk_buff *skb)
{
	const void *cb = skb->cb;
	struct place place = { .protocol = skb->protocol };

	if (skb->len != skb->data_len)
		return place_in(skb);
	bpf_probe_read_kernel(&place.ip, sizeof(place.ip),
			      cb + bpf_core_field_offset(struct napi_gro_cb, frag0));
	bpf_probe_read_kernel(&place.linear, sizeof(place.linear),
			      cb + bpf_core_field_offset(struct napi_gro_cb, frag0_len));
	place.whole = skb->len;
	return behind_tag(place);
}

/*
 * T1. A packet comes into the stack at one of these, and only there: veth and loopback
 * call netif_rx, drivers of NICs one of the others, before GRO and before RPS.
 */
#define ARRIVAL(hook, name, place, handle)                                                 \
	SEC("tp_btf/" #hook)                                                               \
	int BPF_PROG(name, struct sk_buff *skb)                                            \
	{                                                                                  \
		if (!may_be_ip(skb->protocol) || !at_server(skb->dev))                     \
			return 0;                                                          \
		return handle(skb, place(skb));                                            \
	}

#define ARRIVALS(name, handle)                                                             \
	ARRIVAL(netif_rx, name, place_in, handle)                                          \
	ARRIVAL(napi_gro_receive_entry, name##_gro, place_in, handle)                      \
	ARRIVAL(napi_gro_frags_entry, name##_frags, place_in_frags, handle)                \
	ARRIVAL(netif_receive_skb_entry, name##_direct, place_in, handle)                  \
	ARRIVAL(netif_receive_skb_list_entry, name##_list, place_in, handle)

/* on the way out, a link-layer header of any length is before it */
static __always_inline struct place place_out(const struct sk_buff *skb)
{
	const unsigned char *ip = skb->head + skb->network_header;
	u32 whole = skb->len - (u32)(ip - skb->data);
	struct place place = { .ip = ip,
			       .protocol = skb->protocol,
			       .linear = whole - skb->data_len,
			       .whole = whole };

	/* the kernel has put a VLAN's tag before the header that it knows */
	if (is_vlan(place.protocol))
		place.protocol = bpf_htons((u16_at(ip) & 0xf0) == 0x60 ? ETH_P_IPV6 : ETH_P_IP);
	return place;
}

/* the first value of DEVICE_QUEUE, as in taillab_model::PackedEvent: the driver took what was handed down before */
#define LEFT (1U << 31)

/* Names a packet among those of its client that are on their way: a time in nanoseconds. */
static __always_inline u32 number_at(u64 now)
{
	return now & ~LEFT;
}

#define TCQ_F_MQROOT 8

/*
 * Whether packets can wait before the driver of this device takes them: its discipline queues them, or has one that
 * does for each queue of the device (mq). Others in the namespace may, while this one does not.
 */
static __always_inline bool holds_back(const struct net_device *dev)
{
	const struct Qdisc *qdisc = dev->qdisc;

	return qdisc && (qdisc->enqueue || qdisc->flags & TCQ_F_MQROOT);
}

/*
 * What was handed down to a device's queue and may wait there: by packet for datagrams, by socket for streams, since
 * the queue may cut a segment into several packets.
 */
#define MOST_WAITING 16384
#define MOST_SOCKETS 4096
#define MOST_OF_SOCKET 16 /* a power of two, which shows the verifier where it ends */

struct waiting_datagram {
	u32 key;
	u32 number;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, u64);
	__type(value, struct waiting_datagram);
	__uint(max_entries, 1); /* MOST_WAITING, where there are queues: set before loading */
} waiting_datagrams SEC(".maps");

struct waiting_segment {
	u32 seq;
	u32 end;
	u32 number;
};

struct waiting_segments {
	u32 next; /* the place of the oldest */
	struct waiting_segment of[MOST_OF_SOCKET];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, u64);
	__type(value, struct waiting_segments);
	__uint(max_entries, 1); /* MOST_SOCKETS, where there are queues: set before loading */
} waiting_segments SEC(".maps");

/* of what is cut into several packets later, or was joined from several: the bytes of payload in each; else 0 */
static __always_inline u16 bytes_of_each(const struct sk_buff *skb)
{
	return u16_at(skb->head + skb->end +
		      bpf_core_field_offset(struct skb_shared_info, gso_size));
}

/* Reads a packet's bytes, wherever they are; for tracing programs since Linux 6.11. */
extern int bpf_dynptr_from_skb(struct __sk_buff *skb, u64 flags, struct bpf_dynptr *ptr) __ksym
	__weak;

#endif
