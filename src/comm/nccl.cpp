#include "comm/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#ifdef MILLRACE_HAVE_NCCL_HEADER
#include <nccl.h>

#include <type_traits>
#endif

namespace millrace::comm {

// What is used of NCCL, declared here so that building needs no header of it.
namespace nccl {

constexpr Code kSuccess = 0;
constexpr Code kInProgress = 7;
constexpr int kBytes = 0;  ///< types of elements
constexpr int kFloats = 7;
constexpr int kSum = 0;

struct UniqueId {
    char bytes[128];
};
using Stream = void*;  ///< a cudaStream_t

struct Api {
    Code (*unique_id)(UniqueId*);
    Code (*init)(Communicator*, int ranks, UniqueId, int rank);
    Code (*destroy)(Communicator);
    Code (*abort)(Communicator);
    Code (*async_error)(Communicator, Code*);
    const char* (*error_text)(Code);
    const char* (*last_error)(Communicator);
    Code (*group_start)();
    Code (*group_end)();
    Code (*send)(const void*, std::size_t count, int type, int peer, Communicator, Stream);
    Code (*receive)(void*, std::size_t count, int type, int peer, Communicator, Stream);
    Code (*all_gather)(const void*, void*, std::size_t count, int type, Communicator, Stream);
    Code (*all_reduce)(const void*, void*, std::size_t count, int type, int operation, Communicator, Stream);
};

// All but ncclGetLastError, which is the youngest (2.13); without it errors have no details.
#define MILLRACE_NCCL_CALLS(call) \
    call(unique_id, ncclGetUniqueId) call(init, ncclCommInitRank) call(destroy, ncclCommDestroy) call(abort, ncclCommAbort) \
        call(async_error, ncclCommGetAsyncError) call(error_text, ncclGetErrorString) call(group_start, ncclGroupStart) \
            call(group_end, ncclGroupEnd) call(send, ncclSend) call(receive, ncclRecv) call(all_gather, ncclAllGather) \
                call(all_reduce, ncclAllReduce)

#ifdef MILLRACE_HAVE_NCCL_HEADER  // nothing of this remains in the program
/// Both are passed alike: pointers, numbers of one size, or structures of one size.
template <class Ours, class Theirs>
constexpr bool kAlike = sizeof(Ours) == sizeof(Theirs) &&
                        std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>&& std::is_class_v<Ours> == std::is_class_v<Theirs>;

template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class OurResult, class... Ours, class TheirResult, class... Theirs>
requires(sizeof...(Ours) == sizeof...(Theirs)) struct SameCall<OurResult (*)(Ours...), TheirResult (*)(Theirs...)>
    : std::bool_constant<kAlike<OurResult, TheirResult> && (kAlike<Ours, Theirs> && ...)> {
};

#define MILLRACE_SAME_CALL(ours, theirs) static_assert(SameCall<decltype(Api::ours), decltype(&theirs)>::value, #theirs);
MILLRACE_NCCL_CALLS(MILLRACE_SAME_CALL)
MILLRACE_SAME_CALL(last_error, ncclGetLastError)
static_assert(kSuccess == ncclSuccess && kInProgress == ncclInProgress);
static_assert(kBytes == ncclInt8 && kFloats == ncclFloat32 && kSum == ncclSum);
#endif

}  // namespace nccl

namespace {

constexpr const char* kNcclRemedy =
    "several GPUs need NCCL 2.7 or newer: NVIDIA's packages for CUDA have it (libnccl2; Debian has none), and so has PyTorch's "
    "wheel "
    "nvidia-nccl-cu13; MILLRACE_NCCL names the file libnccl.so.2 where it is not found by itself";

template <class Function>
bool bind(void* library, Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

bool bind_all(void* library, nccl::Api& api) {
    bind(library, api.last_error, "ncclGetLastError");
    bool found = true;
#define MILLRACE_BIND(ours, theirs) found = found && bind(library, api.ours, #theirs);
    MILLRACE_NCCL_CALLS(MILLRACE_BIND)
    return found;
}

/// Stays loaded.
base::Result<const nccl::Api*> load() {
    const char* named = std::getenv("MILLRACE_NCCL");
    const std::string path = named != nullptr && *named != '\0' ? named : "libnccl.so.2";
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return base::Error{fmt::format("cannot be loaded ({}); {}", dlerror(), kNcclRemedy), path};
    static nccl::Api api;
    if (!bind_all(library, api)) return base::Error{fmt::format("lacks functions; {}", kNcclRemedy), path};
    return &api;
}

}  // namespace

base::Result<std::unique_ptr<Nccl>> Nccl::open(Group& group) {
    // All ranks learn whether all have the library: one that stays behind would leave the others waiting.
    auto loaded = load();
    MILLRACE_LET(errors, Group::all_texts(group, loaded.ok() ? "" : loaded.error().text()));
    for (std::size_t rank = 0; rank < errors.size(); ++rank)
        if (!errors[rank].empty()) return base::Error{errors[rank], group.name_of(static_cast<int>(rank))};
    std::unique_ptr<Nccl> self(new Nccl(group, **loaded));
    nccl::UniqueId id{};
    if (group.rank() == 0) MILLRACE_TRY(self->status_of(self->api_.unique_id(&id), "ncclGetUniqueId"));
    MILLRACE_TRY(group.broadcast(&id, sizeof id, 0));
    MILLRACE_TRY(self->status_of(self->api_.init(&self->communicator_, group.size(), id, group.rank()), "ncclCommInitRank"));
    return self;
}

Nccl::~Nccl() {
    if (group_.abandoned() || !was_used_) abort();
    if (communicator_ != nullptr) api_.destroy(communicator_);
}

void Nccl::abort() {
    if (communicator_ != nullptr) api_.abort(communicator_);
    communicator_ = nullptr;
}

base::Status Nccl::status_of(nccl::Code code, const char* call) {
    if (code == nccl::kSuccess) return base::ok();
    std::string text = fmt::format("{}: {}", call, api_.error_text(code));
    const char* details = api_.last_error != nullptr ? api_.last_error(communicator_) : nullptr;
    if (details != nullptr && *details != '\0') text += fmt::format(" ({})", details);
    group_.abandon();
    return base::Error{text, group_.name_of(group_.rank())};
}

base::Status Nccl::all_to_all(const void* send, void* receive, std::size_t bytes_each, void* stream) {
    was_used_ = true;
    MILLRACE_TRY(status_of(api_.group_start(), "ncclGroupStart"));
    nccl::Code code = nccl::kSuccess;
    for (int rank = 0; rank < group_.size() && code == nccl::kSuccess; ++rank) {
        const std::size_t place = static_cast<std::size_t>(rank) * bytes_each;
        code = api_.send(static_cast<const char*>(send) + place, bytes_each, nccl::kBytes, rank, communicator_, stream);
        if (code != nccl::kSuccess) break;
        code = api_.receive(static_cast<char*>(receive) + place, bytes_each, nccl::kBytes, rank, communicator_, stream);
    }
    const nccl::Code ended = api_.group_end();
    MILLRACE_TRY(status_of(code, "ncclSend or ncclRecv"));
    return status_of(ended, "ncclGroupEnd");
}

base::Status Nccl::all_gather(const void* send, void* receive, std::size_t bytes_each, void* stream) {
    was_used_ = true;
    return status_of(api_.all_gather(send, receive, bytes_each, nccl::kBytes, communicator_, stream), "ncclAllGather");
}

base::Status Nccl::all_reduce(float* data, std::size_t count, void* stream) {
    was_used_ = true;
    return status_of(api_.all_reduce(data, data, count, nccl::kFloats, nccl::kSum, communicator_, stream), "ncclAllReduce");
}

base::Status Nccl::async_error() {
    nccl::Code found = nccl::kSuccess;
    MILLRACE_TRY(status_of(api_.async_error(communicator_, &found), "ncclCommGetAsyncError"));
    return found == nccl::kInProgress ? base::ok() : status_of(found, "NCCL");
}

}  // namespace millrace::comm
