#include "comm/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

// What is used of NCCL, declared here so that building needs no header of it. Where there is one, the compiler compares the two.
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
static_assert(ncclSuccess == 0 && ncclInProgress == 7 && ncclInt8 == 0 && ncclFloat32 == 7 && ncclSum == 0 &&
              sizeof(ncclUniqueId) == 128);
#else
struct ncclUniqueId {
    char internal[128];
};
enum ncclResult_t { ncclSuccess = 0, ncclInProgress = 7 };
enum ncclDataType_t { ncclInt8 = 0, ncclFloat32 = 7 };
enum ncclRedOp_t { ncclSum = 0 };
using ncclComm_t = ncclComm*;
using cudaStream_t = struct CUstream_st*;
#endif

extern "C" {
ncclResult_t ncclGetUniqueId(ncclUniqueId*);
ncclResult_t ncclCommInitRank(ncclComm_t*, int ranks, ncclUniqueId, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t*);
const char* ncclGetErrorString(ncclResult_t);
const char* ncclGetLastError(ncclComm_t);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void*, std::size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
ncclResult_t ncclRecv(void*, std::size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
ncclResult_t ncclAllGather(const void*, void*, std::size_t count, ncclDataType_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclAllReduce(const void*, void*, std::size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
}

namespace millrace::comm {

#define MILLRACE_NCCL_CALLS(call) \
    call(ncclGetUniqueId) call(ncclCommInitRank) call(ncclCommDestroy) call(ncclCommAbort) call(ncclCommGetAsyncError) \
        call(ncclGetErrorString) call(ncclGetLastError) call(ncclGroupStart) call(ncclGroupEnd) call(ncclSend) call(ncclRecv) \
            call(ncclAllGather) call(ncclAllReduce)

struct NcclCalls {
#define MILLRACE_NCCL_MEMBER(name) decltype(&::name) name;
    MILLRACE_NCCL_CALLS(MILLRACE_NCCL_MEMBER)
};

namespace {

constexpr const char* kNcclRemedy =
    "several GPUs need NCCL 2.13 or newer: NVIDIA's packages for CUDA have it (libnccl2; Debian has none), and so has PyTorch's "
    "wheel nvidia-nccl-cu13; MILLRACE_NCCL names the file libnccl.so.2 where it is not found by itself";

/// Stays loaded.
base::Result<const NcclCalls*> load_nccl() {
    const char* named = std::getenv("MILLRACE_NCCL");
    const std::string path = named != nullptr && *named != '\0' ? named : "libnccl.so.2";
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return base::Error{fmt::format("cannot be loaded ({}); {}", dlerror(), kNcclRemedy), path};
    static NcclCalls calls;
    bool found = true;
#define MILLRACE_NCCL_BIND(name) \
    calls.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
    found = found && calls.name != nullptr;
    MILLRACE_NCCL_CALLS(MILLRACE_NCCL_BIND)
    if (!found) return base::Error{fmt::format("lacks functions; {}", kNcclRemedy), path};
    return &calls;
}

}  // namespace

#define CALL_NCCL(function, ...) MILLRACE_TRY(status_of(calls_.function(__VA_ARGS__), #function))

base::Result<std::unique_ptr<Nccl>> Nccl::open(Group& group) {
    // All ranks learn whether all have the library: one that stays behind would leave the others waiting.
    auto loaded = load_nccl();
    MILLRACE_TRY(group.agree(loaded.ok() ? base::ok() : base::Status(loaded.error())));
    std::unique_ptr<Nccl> self(new Nccl(group, **loaded));
    ncclUniqueId id{};
    if (group.rank() == 0) MILLRACE_TRY(self->status_of(self->calls_.ncclGetUniqueId(&id), "ncclGetUniqueId"));
    MILLRACE_LET(ids, group.all_of(id));
    const int code = self->calls_.ncclCommInitRank(&self->communicator_, group.size(), ids.front(), group.rank());
    MILLRACE_TRY(self->status_of(code, "ncclCommInitRank"));
    return self;
}

Nccl::~Nccl() {
    if (communicator_ == nullptr) return;
    // Aborted, it ends what is under way: streams that wait for a dead peer can be left.
    (group_.abandoned() || !was_used_ ? calls_.ncclCommAbort : calls_.ncclCommDestroy)(communicator_);
}

base::Status Nccl::status_of(int code, const char* call) {
    if (code == ncclSuccess) return base::ok();
    std::string text = fmt::format("{}: {}", call, calls_.ncclGetErrorString(static_cast<ncclResult_t>(code)));
    const char* details = calls_.ncclGetLastError(communicator_);
    if (details != nullptr && *details != '\0') text += fmt::format(" ({})", details);
    group_.abandon();
    return base::Error{text, group_.name_of(group_.rank())};
}

base::Status Nccl::all_to_all(const void* send, void* receive, std::size_t bytes_each, void* stream) {
    was_used_ = true;
    const auto on = static_cast<cudaStream_t>(stream);
    CALL_NCCL(ncclGroupStart);
    ncclResult_t code = ncclSuccess;
    for (int rank = 0; rank < group_.size() && code == ncclSuccess; ++rank) {
        const std::size_t place = static_cast<std::size_t>(rank) * bytes_each;
        code = calls_.ncclSend(static_cast<const char*>(send) + place, bytes_each, ncclInt8, rank, communicator_, on);
        if (code != ncclSuccess) break;
        code = calls_.ncclRecv(static_cast<char*>(receive) + place, bytes_each, ncclInt8, rank, communicator_, on);
    }
    const ncclResult_t ended = calls_.ncclGroupEnd();
    MILLRACE_TRY(status_of(code, "ncclSend or ncclRecv"));
    return status_of(ended, "ncclGroupEnd");
}

base::Status Nccl::all_gather(const void* send, void* receive, std::size_t bytes_each, void* stream) {
    was_used_ = true;
    CALL_NCCL(ncclAllGather, send, receive, bytes_each, ncclInt8, communicator_, static_cast<cudaStream_t>(stream));
    return base::ok();
}

base::Status Nccl::all_reduce(float* data, std::size_t count, void* stream) {
    was_used_ = true;
    CALL_NCCL(ncclAllReduce, data, data, count, ncclFloat32, ncclSum, communicator_, static_cast<cudaStream_t>(stream));
    return base::ok();
}

base::Status Nccl::async_error() {
    ncclResult_t found = ncclSuccess;
    CALL_NCCL(ncclCommGetAsyncError, communicator_, &found);
    return found == ncclInProgress ? base::ok() : status_of(found, "NCCL");
}

}  // namespace millrace::comm
