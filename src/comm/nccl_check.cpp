// Compares the declarations of nccl_abi.h with NCCL's header, where there is one. Nothing of it remains in the program.

#ifdef MILLRACE_HAVE_NCCL_HEADER

#include <nccl.h>

#include <type_traits>

#include "comm/nccl_abi.h"

namespace millrace::comm::nccl {
namespace {

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

#define SAME_CALL(ours, theirs) static_assert(SameCall<decltype(Api::ours), decltype(&theirs)>::value, #theirs)

SAME_CALL(unique_id, ncclGetUniqueId);
SAME_CALL(init, ncclCommInitRank);
SAME_CALL(destroy, ncclCommDestroy);
SAME_CALL(abort, ncclCommAbort);
SAME_CALL(async_error, ncclCommGetAsyncError);
SAME_CALL(error_text, ncclGetErrorString);
SAME_CALL(last_error, ncclGetLastError);
SAME_CALL(group_start, ncclGroupStart);
SAME_CALL(group_end, ncclGroupEnd);
SAME_CALL(send, ncclSend);
SAME_CALL(receive, ncclRecv);
SAME_CALL(all_gather, ncclAllGather);
SAME_CALL(all_reduce, ncclAllReduce);
static_assert(kSuccess == ncclSuccess && kInProgress == ncclInProgress);
static_assert(kBytes == ncclInt8 && kFloats == ncclFloat32 && kSum == ncclSum);

}  // namespace
}  // namespace millrace::comm::nccl

#endif
