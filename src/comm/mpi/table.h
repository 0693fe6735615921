#pragma once
// What libmillrace-mpi.so offers to the program that loads it: C functions and plain types alone.

#include <cstddef>

namespace millrace::comm {

constexpr const char* kMpiEntry = "millrace_mpi_table_3";  ///< with the number of the table's form

struct MpiPlace {
    int rank, size, local_rank, local_size;
};

constexpr int kAllRanks = 0;

/// Each returns null, or a text that says what failed and lasts until the next call. Sizes and aliases as in comm/group.h;
/// `ranks` is a communicator: kAllRanks, or one that split() gave.
struct MpiTable {
    const char* (*open)(MpiPlace* place) = nullptr;
    const char* (*all_to_all)(int ranks, const void* send, void* receive, std::size_t bytes_each) = nullptr;
    const char* (*all_gather)(int ranks, const void* send, void* receive, std::size_t bytes_each) = nullptr;
    const char* (*barrier)(int ranks) = nullptr;
    /// MPI's own sum, in its own order.
    const char* (*all_reduce)(int ranks, float* data, std::size_t count) = nullptr;
    /// The ranks with the same colour, in their order.
    const char* (*split)(int ranks, int colour, int* part, MpiPlace* place) = nullptr;
    const char* (*close)() = nullptr;
};

}  // namespace millrace::comm

extern "C" const millrace::comm::MpiTable* millrace_mpi_table_3();
