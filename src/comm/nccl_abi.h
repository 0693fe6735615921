#pragma once
// What is used of NCCL, declared here so that building needs no header of it; nccl_check.cpp compares it with the real one.

#include <cstddef>

namespace millrace::comm::nccl {

using Code = int;
constexpr Code kSuccess = 0;
constexpr Code kInProgress = 7;
constexpr int kBytes = 0;  ///< types of elements
constexpr int kFloats = 7;
constexpr int kSum = 0;

struct UniqueId {
    char bytes[128];
};
using Communicator = struct CommunicatorTag*;
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

}  // namespace millrace::comm::nccl
