#pragma once
// Reads HDF5 files. The library describes a file and finds the chunks of ordinary data sets; libdeflate unpacks them on the
// caller's threads, because the library lets one thread in at a time.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/element_type.h"
#include "io/file.h"
#include "io/hdf5_writer.h"

namespace millrace::io {

/// A data set as the file describes it.
struct Hdf5Description {
    std::string name;                  ///< with its groups: "segments_mel", "train/labels"
    std::vector<std::uint64_t> dims;   ///< [rows, ...]; none: a single value
    std::optional<ElementType> type;   ///< nothing: strings, records and others, which are not read
    std::string type_text;             ///< "F16", "big-endian I32", "text", ...
    std::vector<std::uint64_t> chunk;  ///< empty: not chunked
    std::vector<std::string> filters;  ///< in the order of writing: "shuffle", "gzip", or the name in the file

    /// "segments_mel [39563, 40, 2, 64, 1] F16, chunks of [...], shuffle, gzip"
    [[nodiscard]] std::string text() const;
};

/// A data set that is open for reading. It keeps the file open; copies share it.
class Hdf5Dataset {
public:
    [[nodiscard]] const Hdf5Description& description() const;
    [[nodiscard]] std::uint64_t rows() const;
    [[nodiscard]] std::uint64_t row_bytes() const;
    /// Whether threads read it side by side; otherwise the library reads it, one thread at a time.
    [[nodiscard]] bool direct() const;
    /// "direct, contiguous", "direct, chunks that the library finds", "by the library: the numbers are big-endian".
    [[nodiscard]] std::string reading() const;

    /// Copies rows [first, first + count) to `out`, which has count * row_bytes() bytes: row-major, little-endian, in the type of
    /// the description. Chunks that were never written give the fill value. Any number of threads may call it. Fails when the
    /// file has changed since it was opened; `out` is undefined then.
    Status read_rows(std::uint64_t first, std::uint64_t count, std::span<std::byte> out) const;

private:
    friend class Hdf5File;
    struct State;
    explicit Hdf5Dataset(std::shared_ptr<const State> state);
    std::shared_ptr<const State> state_;
};

/// An open file and what is in it. The library must understand its structure; a hostile file can make the library fail in ways
/// that are not ours, so files come from people one trusts that far. Chunks are unpacked as hostile.
class Hdf5File {
public:
    static Result<Hdf5File> open(const Path& path);

    /// All data sets, also those in groups, by name.
    [[nodiscard]] const std::vector<Hdf5Description>& datasets() const;
    [[nodiscard]] const Hdf5Description* find(std::string_view name) const;
    /// The file's attributes that are texts or single numbers, as text.
    [[nodiscard]] const std::map<std::string, std::string, std::less<>>& attributes() const;
    /// An error names the attributes that are there.
    [[nodiscard]] Result<std::string> attribute(std::string_view name) const;

    /// Fails for a name that is not there (the error lists those that are) and for a type that is not
    /// read.
    [[nodiscard]] Result<Hdf5Dataset> dataset(std::string_view name) const;

private:
    friend class Hdf5Dataset;
    struct State;
    explicit Hdf5File(std::shared_ptr<const State> state);
    std::shared_ptr<const State> state_;
};

}  // namespace millrace::io
