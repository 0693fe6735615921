#pragma once
// The features of one part in its file, read piece by piece.

#include <span>

#include "data/folder.h"
#include "io/hdf5.h"

namespace millrace::data {

/// The data set segments_mel. Any number of threads may read.
class FeatureFile {
public:
    /// F16 or F32 [recordings, ...] with `values` features of each recording.
    FeatureFile(std::shared_ptr<const io::Hdf5Dataset> set, Path path, std::uint64_t values);

    /// The features of recordings [first, first + count), f16 [count * values]. Refuses those that are not finite, and a file
    /// that has changed.
    Status read(std::uint64_t first, std::uint64_t count, std::span<std::uint16_t> out) const;
    /// The same of all, on as many threads as the machine has.
    Result<std::vector<std::uint16_t>> read_all() const;

    [[nodiscard]] std::uint64_t count() const { return set_->rows(); }
    [[nodiscard]] std::uint64_t values() const { return values_; }
    /// Recordings that are best read together: those of a chunk.
    [[nodiscard]] std::uint64_t together() const;

private:
    std::shared_ptr<const io::Hdf5Dataset> set_;
    Path path_;
    std::uint64_t values_;
};

}  // namespace millrace::data
