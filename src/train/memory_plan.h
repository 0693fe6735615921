#pragma once
// What a run will take of its device's memory and of the machine's, known before anything is allocated, and whether that fits.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/group.h"
#include "ops/backend.h"
#include "tape/program.h"
#include "tape/store.h"

namespace millrace::train {

/// Bytes by purpose. Activations: those of the largest program, everything kept for the backward pass included. Scratch: what the
/// kernels of all programs keep, and the workspace of the backend's library. Of the machine's memory, where the device has none
/// of its own: held, what the process had before, the data set as it was read with it; passing, see passing_bytes().
struct MemoryNeeds {
    std::int64_t data = 0, parameters = 0, gradients = 0, optimizer = 0, activations = 0, scratch = 0, other = 0;
    std::int64_t held = 0, passing = 0;

    /// Of the device.
    [[nodiscard]] std::int64_t total() const { return data + parameters + gradients + optimizer + activations + scratch + other; }
    /// Of the process, resident.
    [[nodiscard]] std::int64_t peak() const { return total() + held + passing; }
    /// "data 3.1 MiB, parameters 7.7 MiB, gradients 7.7 MiB, optimizer 15.3 MiB, activations 160.3 MiB, total 194.0 MiB", and
    /// where something is held ", 255.1 MiB with the program and its data"
    [[nodiscard]] std::string text() const;
};

/// Of a store with everything declared and an arena.
MemoryNeeds needs_of(const tape::Store& store, const tape::Arena::Size& arena);

struct MemoryLimit {
    std::int64_t bytes = 0;
    std::string owner;  ///< "train.memory allows", "the GPU has", "the machine has": what comes before the number
};

/// `given` bytes when positive. Else what the device has free less a reserve for what no plan knows of (a GPU: kernels and
/// captured launches, at least 512 MiB; the machine: a twentieth). Absent where that is unknown.
std::optional<MemoryLimit> memory_limit(std::int64_t given, const ops::Backend& backend);
/// What the machine has free, less a twentieth, or what a limit on the process's address space or data leaves if that is less, or
/// what is left of this rank's share of its host.
std::optional<MemoryLimit> host_memory_limit();
/// Shares out what a host has free now among its ranks; a group of one takes all. Every rank calls it, before it reads data.
base::Status share_memory(comm::Group& group);
/// What a run takes of the machine's memory for a while, whatever its device: windows of weights that are drawn, saved or loaded,
/// buffers of files, stacks and rows of its threads, code that was not yet touched. `members`: the files of checkpoints of many
/// are read as a whole.
std::int64_t passing_bytes(int members, std::int64_t parameter_bytes);
/// Of this process, resident.
std::int64_t resident_bytes();

/// One way of running that was tried: its settings as a recipe writes them, and what it needs.
struct MemoryTrial {
    std::string settings;
    std::int64_t bytes = 0;
};

/// Refuses a plan: what it needs, what there is, and the settings that would fit; `trials` may hold some that do not.
/// `couplings`: what keeps a batch from being split unasked.
base::Error refuse_plan(const MemoryNeeds& needs, const MemoryLimit& limit, const std::vector<MemoryTrial>& trials,
                        const std::vector<std::string>& couplings = {});

/// The divisors of a positive number, largest first.
std::vector<std::int32_t> divisors(std::int32_t number);

}  // namespace millrace::train
