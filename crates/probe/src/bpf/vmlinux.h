/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types that the programs read, with only the members that they
 * read. Offsets come from the running kernel's BTF at load time
 * (preserve_access_index), so this file need not match any kernel; members that
 * the kernel keeps in anonymous structs and unions are found by name.
 */
#ifndef TAILLAB_VMLINUX_H
#define TAILLAB_VMLINUX_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;

enum {
	false = 0,
	true = 1,
};

/* libbpf's bpf_helper_defs.h wants them */
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef __u16 __sum16;

enum bpf_map_type {
	BPF_MAP_TYPE_ARRAY = 2,
};

enum {
	BPF_F_MMAPABLE = 1U << 10,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
};

struct sock;

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned int len;
	unsigned int data_len;
	__be16 protocol;
	__u16 network_header;
	unsigned char *head;
	unsigned char *data;
};

struct udphdr {
	__be16 source;
	__be16 dest;
	__be16 len;
	__sum16 check;
};

struct tcphdr {
	__be16 source;
	__be16 dest;
	__be32 seq;
	__be32 ack_seq;
};

struct sock_common {
	__be16 skc_dport;
	__u16 skc_num;
	possible_net_t skc_net;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
};

struct tcp_sock {
	u32 copied_seq;
	u32 rcv_nxt;
	u32 snd_nxt;
	u32 write_seq;
};

struct nsproxy {
	struct net *net_ns;
};

struct task_struct {
	int pid;
	struct nsproxy *nsproxy;
};

/* x86-64 */
struct pt_regs {
	unsigned long orig_ax;
};

#pragma clang attribute pop

#endif
