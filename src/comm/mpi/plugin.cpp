// libmillrace-mpi.so: the collectives of comm/group.h by MPI. Its functions are called from one thread at a time.

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "comm/mpi/table.h"

namespace millrace::comm {
namespace {

/// All-gathers of up to so many ranks and bytes each are sent all at once. On a host of two cores that took 0.4 to 1.1 of the
/// time of MPI_Allgather on 2, 3 and 4 ranks.
constexpr int kMostAtOnce = 8;
constexpr std::size_t kBytesAtOnce = std::size_t{1} << 16;
/// Open MPI sends up to 4,096 bytes with their head at once within a host; more waits until the other side asks for it. Two or
/// three such messages took less time than one of 4 to 8 KiB.
constexpr std::size_t kEager = 4000, kMostEager = 3;

/// Of one call. Sums, and what checkpoints gather, come in shorter pieces.
constexpr const char* kTooMany = "MPI counts at most INT_MAX elements of a rank";

/// Communicators that split() makes: one for each way in which a run divides its ranks.
constexpr int kMostParts = 16;

char failure[MPI_MAX_ERROR_STRING + 64];
MPI_Comm communicators[kMostParts] = {MPI_COMM_WORLD};
int own_rank[kMostParts] = {};
int parts = 1;
constexpr int kGatherTag = 1;

const char* failed(const char* call, int code) {
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(code, text, &length);
    std::snprintf(failure, sizeof failure, "%s: %s", call, text);
    return failure;
}

#define CALL_MPI(function, ...) \
    if (const int code = function(__VA_ARGS__); code != MPI_SUCCESS) return failed(#function, code)

const char* find_place(int ranks, MpiPlace* place) {
    MPI_Comm all = communicators[ranks];
    CALL_MPI(MPI_Comm_rank, all, &place->rank);
    CALL_MPI(MPI_Comm_size, all, &place->size);
    MPI_Comm local = MPI_COMM_NULL;
    CALL_MPI(MPI_Comm_split_type, all, MPI_COMM_TYPE_SHARED, place->rank, MPI_INFO_NULL, &local);
    CALL_MPI(MPI_Comm_rank, local, &place->local_rank);
    CALL_MPI(MPI_Comm_size, local, &place->local_size);
    CALL_MPI(MPI_Comm_free, &local);
    own_rank[ranks] = place->rank;
    return nullptr;
}

const char* open(MpiPlace* place) {
    // Waiting ranks spin. On a core that has other work, of another rank or of this one, that holds it up: 4 ranks on 2 cores
    // took 6 ms instead of 0.02 for a sum of one number. 2 ranks on 2 cores showed no clear cost of giving way.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    int level = 0;
    CALL_MPI(MPI_Init_thread, nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
    if (level < MPI_THREAD_SERIALIZED)
        return "this MPI cannot be called from several threads in turn (MPI_THREAD_SERIALIZED); take one that was built with "
               "threads";
    CALL_MPI(MPI_Comm_set_errhandler, MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return find_place(kAllRanks, place);
}

const char* split(int ranks, int colour, int* part, MpiPlace* place) {
    if (parts == kMostParts) return "too many parts of the ranks";
    CALL_MPI(MPI_Comm_split, communicators[ranks], colour, own_rank[ranks], &communicators[parts]);
    CALL_MPI(MPI_Comm_set_errhandler, communicators[parts], MPI_ERRORS_RETURN);
    *part = parts++;
    return find_place(*part, place);
}

const char* all_to_all(int ranks, const void* send, void* receive, std::size_t bytes_each) {
    if (bytes_each > INT_MAX) return kTooMany;
    const auto count = static_cast<int>(bytes_each);
    CALL_MPI(MPI_Alltoall, send, count, MPI_BYTE, receive, count, MPI_BYTE, communicators[ranks]);
    return nullptr;
}

/// Everything to and from all ranks at once: MPI's own all-gathers are several messages one after the other.
const char* gather_at_once(int ranks, int size, const char* send, char* receive, std::size_t bytes_each) {
    MPI_Request requests[2 * (kMostAtOnce - 1) * kMostEager];
    int count = 0;
    const std::size_t each = bytes_each <= kMostEager * kEager ? kEager : bytes_each;
    for (int step = 1; step < size; ++step)
        for (std::size_t at = 0; at < bytes_each; at += each) {
            const int from = (own_rank[ranks] + size - step) % size;
            CALL_MPI(MPI_Irecv, receive + static_cast<std::size_t>(from) * bytes_each + at,
                     static_cast<int>(std::min(each, bytes_each - at)), MPI_BYTE, from, kGatherTag, communicators[ranks],
                     &requests[count++]);
        }
    char* own = receive + static_cast<std::size_t>(own_rank[ranks]) * bytes_each;
    if (send != own) std::memcpy(own, send, bytes_each);
    for (int step = 1; step < size; ++step)
        for (std::size_t at = 0; at < bytes_each; at += each)
            CALL_MPI(MPI_Isend, send + at, static_cast<int>(std::min(each, bytes_each - at)), MPI_BYTE,
                     (own_rank[ranks] + step) % size, kGatherTag, communicators[ranks], &requests[count++]);
    CALL_MPI(MPI_Waitall, count, requests, MPI_STATUSES_IGNORE);
    return nullptr;
}

const char* all_gather(int ranks, const void* send, void* receive, std::size_t bytes_each) {
    int size = 0;
    CALL_MPI(MPI_Comm_size, communicators[ranks], &size);
    if (size <= kMostAtOnce && bytes_each <= kBytesAtOnce)
        return gather_at_once(ranks, size, static_cast<const char*>(send), static_cast<char*>(receive), bytes_each);
    if (bytes_each > INT_MAX) return kTooMany;
    const auto count = static_cast<int>(bytes_each);
    const bool in_place = send == static_cast<char*>(receive) + static_cast<std::size_t>(own_rank[ranks]) * bytes_each;
    CALL_MPI(MPI_Allgather, in_place ? MPI_IN_PLACE : send, count, MPI_BYTE, receive, count, MPI_BYTE, communicators[ranks]);
    return nullptr;
}

const char* barrier(int ranks) {
    CALL_MPI(MPI_Barrier, communicators[ranks]);
    return nullptr;
}

const char* all_reduce(int ranks, float* data, std::size_t count) {
    if (count > INT_MAX) return kTooMany;
    CALL_MPI(MPI_Allreduce, MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, communicators[ranks]);
    return nullptr;
}

const char* close() {
    CALL_MPI(MPI_Finalize);
    return nullptr;
}

}  // namespace
}  // namespace millrace::comm

extern "C" __attribute__((visibility("default"))) const millrace::comm::MpiTable* millrace_mpi_table_3() {
    using namespace millrace::comm;
    static const MpiTable table = {open, all_to_all, all_gather, barrier, all_reduce, split, close};
    return &table;
}
