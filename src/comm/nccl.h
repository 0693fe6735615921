#pragma once
// NCCL moves device memory between the ranks of a group. The library is loaded at run time.

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "comm/group.h"

struct ncclComm;  // of nccl.h

namespace millrace::comm {

struct NcclCalls;

/// A communicator over all ranks of a group, each with a GPU of its own. Collectives are enqueued on a stream (a cudaStream_t),
/// may be captured, and are called by all ranks in the same order. An error leaves it unusable.
class Nccl {
public:
    /// Collective. Takes the current device of this thread. MILLRACE_NCCL names the library where it is not found by itself.
    static base::Result<std::unique_ptr<Nccl>> open(Group& group);
    /// Waits for the other ranks unless `group` was abandoned, or nothing was ever sent.
    ~Nccl();
    Nccl(const Nccl&) = delete;
    Nccl& operator=(const Nccl&) = delete;

    [[nodiscard]] int rank() const { return group_.rank(); }
    [[nodiscard]] int ranks() const { return group_.size(); }
    /// As in comm/group.h, on device memory.
    base::Status all_to_all(const void* send, void* receive, std::size_t bytes_each, void* stream);
    base::Status all_gather(const void* send, void* receive, std::size_t bytes_each, void* stream);
    /// `data` [count] becomes the sum over all ranks, added in the library's order.
    base::Status all_reduce(float* data, std::size_t count, void* stream);

    /// What went wrong in work that was enqueued: a peer that died is seen here. Any thread; touches no stream.
    base::Status async_error();

private:
    Nccl(Group& group, const NcclCalls& calls) : group_(group), calls_(calls) {}
    base::Status status_of(int code, const char* call);

    Group& group_;
    const NcclCalls& calls_;
    ncclComm* communicator_ = nullptr;
    bool was_used_ = false;
};

}  // namespace millrace::comm
