// libmillrace-mpi.so: the collectives of comm/group.h by MPI. Its functions are called from one thread at a time.

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "comm/mpi/table.h"

namespace millrace::comm {
namespace {

/// What one call moves per rank: MPI's counts are ints.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

/// All-gathers of up to so many ranks and bytes each are sent all at once. On a host of two cores that took 0.4 to 1.1 of the
/// time of MPI_Allgather on 2, 3 and 4 ranks.
constexpr int kMostAtOnce = 8;
constexpr std::size_t kBytesAtOnce = std::size_t{1} << 16;
/// Open MPI sends up to 4,096 bytes with their head at once within a host; more waits until the other side asks for it. Two or
/// three such messages took less time than one of 4 to 8 KiB.
constexpr std::size_t kEager = 4000, kMostEager = 3;

/// Communicators that split() makes: one for each way in which a run divides its ranks.
constexpr int kMostParts = 16;

char failure[MPI_MAX_ERROR_STRING + 64];
MPI_Comm communicators[kMostParts] = {MPI_COMM_WORLD};
int own_rank[kMostParts] = {};
int parts = 1;
int rank_count = 1;
constexpr int kNoteTag = 1, kGatherTag = 2;

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
    int is_initialised = 0;
    CALL_MPI(MPI_Initialized, &is_initialised);
    if (is_initialised != 0) return "MPI is already in use; a process opens its group once";
    // Waiting ranks spin. On a core that has other work, of another rank or of this one, that holds it up: 4 ranks on 2 cores
    // took 6 ms instead of 0.02 for a sum of one number. 2 ranks on 2 cores showed no clear cost of giving way.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    int level = 0;
    CALL_MPI(MPI_Init_thread, nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
    if (level < MPI_THREAD_SERIALIZED)
        return "this MPI cannot be called from several threads in turn (MPI_THREAD_SERIALIZED); take one that was built with "
               "threads";
    CALL_MPI(MPI_Comm_set_errhandler, MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const char* error = find_place(kAllRanks, place);
    rank_count = place->size;
    return error;
}

const char* split(int ranks, int colour, int* part, MpiPlace* place) {
    if (parts == kMostParts) return "too many parts of the ranks";
    CALL_MPI(MPI_Comm_split, communicators[ranks], colour, own_rank[ranks], &communicators[parts]);
    CALL_MPI(MPI_Comm_set_errhandler, communicators[parts], MPI_ERRORS_RETURN);
    *part = parts++;
    return find_place(*part, place);
}

/// Blocks of `bytes` that lie `stride` bytes apart.
struct Blocks {
    MPI_Datatype type = MPI_DATATYPE_NULL;

    ~Blocks() {
        if (type != MPI_DATATYPE_NULL) MPI_Type_free(&type);
    }
    const char* make(std::size_t bytes, std::size_t stride) {
        MPI_Datatype block = MPI_DATATYPE_NULL;
        CALL_MPI(MPI_Type_contiguous, static_cast<int>(bytes), MPI_BYTE, &block);
        CALL_MPI(MPI_Type_create_resized, block, 0, static_cast<MPI_Aint>(stride), &type);
        CALL_MPI(MPI_Type_free, &block);
        CALL_MPI(MPI_Type_commit, &type);
        return nullptr;
    }
};

/// Calls `move(offset, count, type)`, where `count` of `type` are the same part of each rank's `bytes_each`.
template <class Move>
const char* in_parts(std::size_t bytes_each, Move&& move) {
    if (bytes_each <= kMostBytes) return move(0, static_cast<int>(bytes_each), MPI_BYTE);
    for (std::size_t done = 0; done < bytes_each; done += kMostBytes) {
        Blocks blocks;
        if (const char* error = blocks.make(std::min(kMostBytes, bytes_each - done), bytes_each)) return error;
        if (const char* error = move(done, 1, blocks.type)) return error;
    }
    return nullptr;
}

const char* all_to_all(int ranks, const void* send, void* receive, std::size_t bytes_each) {
    return in_parts(bytes_each, [&](std::size_t offset, int count, MPI_Datatype type) -> const char* {
        CALL_MPI(MPI_Alltoall, static_cast<const char*>(send) + offset, count, type, static_cast<char*>(receive) + offset, count,
                 type, communicators[ranks]);
        return nullptr;
    });
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
    const bool in_place = send == static_cast<char*>(receive) + static_cast<std::size_t>(own_rank[ranks]) * bytes_each;
    return in_parts(bytes_each, [&](std::size_t offset, int count, MPI_Datatype type) -> const char* {
        const void* from = in_place ? MPI_IN_PLACE : static_cast<const char*>(send) + offset;
        CALL_MPI(MPI_Allgather, from, count, type, static_cast<char*>(receive) + offset, count, type, communicators[ranks]);
        return nullptr;
    });
}

const char* broadcast(int ranks, void* data, std::size_t bytes, int root) {
    for (std::size_t done = 0; done < bytes; done += kMostBytes)
        CALL_MPI(MPI_Bcast, static_cast<char*>(data) + done, static_cast<int>(std::min(kMostBytes, bytes - done)), MPI_BYTE, root,
                 communicators[ranks]);
    return nullptr;
}

const char* barrier(int ranks) {
    CALL_MPI(MPI_Barrier, communicators[ranks]);
    return nullptr;
}

const char* all_reduce(int ranks, float* data, std::size_t count) {
    if (count > INT_MAX) return "MPI_Allreduce: more than INT_MAX floats";
    CALL_MPI(MPI_Allreduce, MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, communicators[ranks]);
    return nullptr;
}

const char* send_note(int note) {
    static std::deque<int> sent;  // MPI reads them after this call
    sent.push_back(note);
    for (int rank = 0; rank < rank_count; ++rank) {
        if (rank == own_rank[kAllRanks]) continue;
        MPI_Request request = MPI_REQUEST_NULL;
        CALL_MPI(MPI_Isend, &sent.back(), 1, MPI_INT, rank, kNoteTag, MPI_COMM_WORLD, &request);
        CALL_MPI(MPI_Request_free, &request);
    }
    return nullptr;
}

const char* next_note(int* has_come, int* note) {
    MPI_Status status;
    CALL_MPI(MPI_Iprobe, MPI_ANY_SOURCE, kNoteTag, MPI_COMM_WORLD, has_come, &status);
    if (*has_come != 0) CALL_MPI(MPI_Recv, note, 1, MPI_INT, status.MPI_SOURCE, kNoteTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return nullptr;
}

const char* close() {
    CALL_MPI(MPI_Finalize);
    return nullptr;
}

}  // namespace
}  // namespace millrace::comm

extern "C" __attribute__((visibility("default"))) const millrace::comm::MpiTable* millrace_mpi_table() {
    using namespace millrace::comm;
    static const MpiTable table = {kMpiTableVersion, open,  all_to_all, all_gather, broadcast, barrier,
                                   all_reduce,       split, close,      send_note,  next_note};
    return &table;
}
