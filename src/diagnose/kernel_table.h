#pragma once
// What the GPU computed: kernels by time, and runs of element-wise kernels that one kernel could replace. Nothing here judges:
// times are plain sums over everything that was recorded of the process and device with most work.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/kernel_names.h"
#include "diagnose/timeline.h"

namespace millrace::diagnose {

/// All kernels of one name.
struct KernelRow {
    std::string name;
    std::uint64_t calls = 0;
    double ms = 0;               ///< of them all
    std::optional<Frame> where;  ///< the user's line with most of the time whose line is known
    std::string_view data_type;  ///< "bf16"; empty: the name does not say
    Units units = Units::kUnsaid;
    std::optional<double> waves;  ///< mean by time: 1 fills the GPU once
};

/// Element-wise kernels that one function launches right after each other on one stream, with no wait and nothing else on the
/// stream in between.
struct KernelChain {
    std::optional<Frame> where;      ///< line of the first
    std::vector<std::string> names;  ///< in their order
    std::uint64_t times = 0;         ///< seen, among launches whose line is known
    double ms = 0;                   ///< of all recorded kernels, as much as its share of those whose line is known
};

struct KernelTable {
    double gpu_ms = 0;                ///< kernels, copies and sets, what runs side by side counted twice
    std::vector<KernelRow> rows;      ///< most time first
    std::vector<KernelChain> chains;  ///< most time first
};

struct Study;
KernelTable table_of_kernels(const Study& study);

}  // namespace millrace::diagnose
