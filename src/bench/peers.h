#pragma once
// Runs the opponents of bench/peers as child processes and reads their rows.

#include <string>
#include <vector>

#include "base/result.h"
#include "bench/bench.h"

namespace millrace::bench {

struct PeerTime {
    std::string name;  ///< "torch eager"
    double ms = 0, low = 0, high = 0;
    std::string error;  ///< not empty: why there is no time
};

struct PeerTimes {
    std::vector<PeerTime> peers;
    std::string reason;    ///< not empty: why no peer was timed
    std::string versions;  ///< "torch 1.13.1, openblas, 2 threads"
};

/// The folder with the peers' scripts: `MILLRACE_PEERS`, or bench/peers beside or above the binary, or below the current folder.
base::Result<std::string> find_peers();

/// The interpreter: `MILLRACE_PYTHON`; else for the CPU Debian's /usr/bin/python3, which owns python3-torch, and for CUDA the one
/// of the PATH.
std::string peer_python(ops::DeviceKind device);

/// One row of a peer's standard output; lines that are no rows give nothing.
bool read_peer_row(const std::string& line, PeerTimes& into);

/// Rows that a script of the peers' folder prints. Never fails: without a row there is a reason.
PeerTimes run_peers(const std::vector<std::string>& command);

/// What runs the peers of a workload with the shape of its row; `precision` is that of OurTimes. The error is why there is no
/// peer: "cannot follow model.policy".
base::Result<std::vector<std::string>> peer_command(const Workload& workload, const Options& options,
                                                    const std::string& precision);

}  // namespace millrace::bench
