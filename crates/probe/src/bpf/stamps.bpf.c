// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The stamps T1, T2, T4, T5 and T6 of every request of one server, the thread switches of its
 * CPUs, and what else delays requests. T3 follows from the others.
 *
 * The programs run on the server's core for every request. So each filters before it does anything
 * else, and writes at most one event of 16 bytes (except for payload). User space joins the events
 * to requests.
 */
#include "common.bpf.h"
#include "disturbances.bpf.h"
#include "udp.bpf.h"
#include "tcp.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
