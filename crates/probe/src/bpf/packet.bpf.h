/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Headers of packets, and addresses of clients. */
#ifndef TAILLAB_PACKET_BPF_H
#define TAILLAB_PACKET_BPF_H

#include "common.bpf.h"

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

/* as taillab_model::address_hash, of an address in network order */
static __always_inline u8 hash_of_ipv4(__be32 address)
{
	return bpf_ntohl(address) * 0x9e3779b1U >> 24;
}

static __always_inline u8 hash_of_ipv6(u32 a, u32 b, u32 c, u32 d)
{
	/* an IPv4 address mapped into IPv6 counts as the IPv4 address */
	if (!a && !b && c == bpf_htonl(0xffff))
		return hash_of_ipv4(d);
	return hash_of_ipv4(a ^ b ^ c ^ d);
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

/* the hash of a connection's client */
static __always_inline u8 client_hash(const struct sock *sk)
{
	const u32 *words;

	if (sk->__sk_common.skc_family == AF_INET)
		return hash_of_ipv4(sk->__sk_common.skc_daddr);
	words = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32;
	return hash_of_ipv6(words[0], words[1], words[2], words[3]);
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
	u16 client_port;
	u8 address; /* the client's, as a hash */
};

/*
 * The offset of the transport's header, behind the header of IPv6 and at most one extension
 * header. Negative: another protocol, or a later fragment; 0: unknown.
 */
static __always_inline int behind_ipv6(const unsigned char *ip, u32 linear, u8 transport)
{
	u8 next = u16_at(ip + 6);
	u16 word;

	if (next == transport)
		return IPV6_BYTES;
	if (next != NEXT_HOP_BY_HOP && next != NEXT_ROUTING && next != NEXT_FRAGMENT &&
	    next != NEXT_DESTINATION)
		return -1;
	if (linear < IPV6_BYTES + 8)
		return 0;
	word = u16_at(ip + IPV6_BYTES);
	if (next == NEXT_FRAGMENT) {
		if (u16_at(ip + IPV6_BYTES + 2) & bpf_htons(IPV6_OFFSET))
			return -1;
		word &= 0xff;
	}
	next = word;
	if (next == transport)
		return IPV6_BYTES + 8 + (word >> 8) * 8;
	return next == NEXT_HOP_BY_HOP || next == NEXT_ROUTING || next == NEXT_FRAGMENT ||
			       next == NEXT_DESTINATION ?
		       0 :
		       -1;
}

/* where a packet's IP header is, how much of it may be read, and how long it is from there */
struct place {
	const unsigned char *ip;
	u32 linear;
	u32 whole;
};

/* Reads a packet's headers. A fragment other than the first has no ports. */
static __always_inline enum verdict read_headers(struct place place, __be16 protocol, u8 transport,
						 bool incoming, struct headers *headers)
{
	const unsigned char *client, *own, *ip = place.ip;
	u32 linear = place.linear;
	u32 header, total, word;
	int behind;
	u16 ours;

	/* several fields in one read, because each read is checked */
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
	headers->client_port = bpf_ntohs(incoming ? word : word >> 16);
	if (protocol == bpf_htons(ETH_P_IP)) {
		own = ip + (incoming ? 16 : 12);
		if (config.address_count && !is_servers_ipv4(u32_at(own)))
			return OTHER;
		headers->address = hash_of_ipv4(u32_at(ip + (incoming ? 12 : 16)));
	} else {
		own = ip + (incoming ? 24 : 8);
		if (config.address_count &&
		    !is_servers_address(u32_at(own), u32_at(own + 4), u32_at(own + 8),
					u32_at(own + 12)))
			return OTHER;
		client = ip + (incoming ? 8 : 24);
		headers->address = hash_of_ipv6(u32_at(client), u32_at(client + 4),
						u32_at(client + 8), u32_at(client + 12));
	}
	headers->transport = ip + header;
	headers->linear = linear - header;
	headers->bytes = total - header;
	return OURS;
}

static __always_inline bool is_ip(__be16 protocol)
{
	return protocol == bpf_htons(ETH_P_IP) || protocol == bpf_htons(ETH_P_IPV6);
}

/* on the way in, skb->data is behind the link-layer header */
static __always_inline struct place place_in(const struct sk_buff *skb)
{
	struct place place = { skb->data, skb->len - skb->data_len, skb->len };

	return place;
}

/* GRO of drivers that give pages keeps the bytes outside the skb, without the link-layer header */
static __always_inline struct place place_in_frags(const struct sk_buff *skb)
{
	const void *cb = skb->cb;
	struct place place = {};

	if (skb->len != skb->data_len)
		return place_in(skb);
	bpf_probe_read_kernel(&place.ip, sizeof(place.ip),
			      cb + bpf_core_field_offset(struct napi_gro_cb, frag0));
	bpf_probe_read_kernel(&place.linear, sizeof(place.linear),
			      cb + bpf_core_field_offset(struct napi_gro_cb, frag0_len));
	place.whole = skb->len;
	return place;
}

/*
 * T1. A packet comes into the stack at one of these, and only there: veth and loopback
 * call netif_rx, drivers of NICs one of the others, before GRO and before RPS.
 */
#define ARRIVAL(hook, name, place, handle)                                                 \
	SEC("tp_btf/" #hook)                                                               \
	int BPF_PROG(name, struct sk_buff *skb)                                            \
	{                                                                                  \
		if (!is_ip(skb->protocol) || !at_server(skb->dev))                         \
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
	struct place place = { ip, whole - skb->data_len, whole };

	return place;
}

#endif
