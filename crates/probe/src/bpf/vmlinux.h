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

/* needed by libbpf's bpf_helper_defs.h */
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef __u16 __sum16;

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_MMAPABLE = 1U << 10,
};

/* of the kernel's interface; libbpf needs them as structs */
struct bpf_dynptr {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

struct __sk_buff {
	__u32 len;
};

/* the context of a program at a cgroup's sendmsg4 or sendmsg6 */
struct bpf_sock_addr {
	__u32 user_family;
	__u32 user_ip4;
	__u32 user_ip6[4];
	__u32 user_port;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 msg_src_ip4;
	__u32 msg_src_ip6[4];
	__u64 sk;
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

struct Qdisc {
	int (*enqueue)(void);
	unsigned int flags;
};

struct net_device {
	struct Qdisc *qdisc;
	int ifindex;
	unsigned char lower_level;
	possible_net_t nd_net;
};

struct sock;

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	char cb[48];
	int skb_iif;
	unsigned int end;
	unsigned int len;
	unsigned int data_len;
	__be16 protocol;
	__u16 network_header;
	unsigned char *head;
	unsigned char *data;
};

struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
};

/* what GRO keeps in sk_buff.cb */
struct napi_gro_cb {
	void *frag0;
	unsigned int frag0_len;
};

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
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
	unsigned short skc_family;
	volatile unsigned char skc_state;
	__be16 skc_dport;
	__u16 skc_num;
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	possible_net_t skc_net;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	u8 sk_shutdown;
};

struct tcp_sock {
	u32 copied_seq;
	u32 rcv_nxt;
	u32 snd_nxt;
	u32 write_seq;
	u32 snd_una;
	u64 bytes_acked;
	u32 total_retrans;
	u8 chrono_type : 2;
	u8 is_cwnd_limited : 1;
};

struct iov_iter {
	unsigned long count;
};

struct msghdr {
	struct iov_iter msg_iter;
};

struct nsproxy {
	struct net *net_ns;
};

struct kernfs_node {
	u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[];
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct css_set {
	struct cgroup_subsys_state *subsys[12];
	struct cgroup *dfl_cgrp;
};

struct task_io_accounting {
	u64 syscr;
	u64 syscw;
};

struct thread_info {
	u32 status;
};

struct task_struct {
	struct thread_info thread_info;
	struct task_io_accounting ioac;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	char comm[16];
	struct css_set *cgroups;
	struct nsproxy *nsproxy;
};

struct kiocb {
	void (*ki_complete)(struct kiocb *iocb, long ret);
};

struct io_kiocb {
	u8 opcode;
};

/* x86-64 */
struct pt_regs {
	unsigned long orig_ax;
};

#pragma clang attribute pop

#endif
