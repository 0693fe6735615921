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

namespace millrace::io {

/// Whether this build knows HDF5; without it create() and Hdf5File::open say what is missing.
bool have_hdf5();

/// How a data set is laid out in the file.
struct Hdf5Layout {
    std::string name{};
    ElementType type = ElementType::kF32;  ///< all but BF16 and BOOL
    /// [rows, ...], one to 32 axes. With `growing` the number of rows is the one at the end and dims[0] is not looked at.
    std::vector<std::uint64_t> dims{};
    bool growing = false;                ///< needs chunks
    std::vector<std::uint64_t> chunk{};  ///< as many axes as dims; empty: contiguous
    int gzip = 0;                        ///< 1 to 9, 0: not compressed; needs chunks
    bool shuffle = false;                ///< bytes of equal rank side by side before gzip; needs chunks
};

/// Writes under a temporary name; only finish() makes it the file. Without finish(), and after an error, nothing is left behind
/// and an old file is untouched. Not for several threads at once.
class Hdf5Writer {
public:
    static Result<std::unique_ptr<Hdf5Writer>> create(const Path& path);
    virtual ~Hdf5Writer() = default;

    /// The number by which append() knows it. The name has no '/' and is new.
    virtual Result<std::size_t> add_dataset(const Hdf5Layout& layout) = 0;
    /// Writes the next rows of a data set: whole rows in row-major order, little-endian. Compressed chunks are packed once when
    /// the rows come in order, also where a block ends inside a chunk.
    virtual Status append(std::size_t dataset, Bytes rows) = 0;
    /// A text attribute of the file (h5py: str), UTF-8 without NUL; an earlier one of that name is replaced.
    virtual Status set_attribute(std::string_view name, std::string_view text) = 0;
    /// Fails when a data set that does not grow lacks rows.
    virtual Status finish() = 0;
};

// Writes HDF5 files that h5py, MATLAB and the library's own tools read: numeric data sets and texts as attributes of the file.

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

/// A data set that is open for reading. It keeps the file open.
class Hdf5Dataset {
public:
    virtual ~Hdf5Dataset() = default;
    [[nodiscard]] virtual const Hdf5Description& description() const = 0;
    [[nodiscard]] std::uint64_t rows() const { return description().dims[0]; }
    [[nodiscard]] virtual std::uint64_t row_bytes() const = 0;
    /// Whether threads read it side by side; otherwise the library reads it, one thread at a time.
    [[nodiscard]] virtual bool direct() const = 0;
    /// "direct, contiguous", "direct, chunks that the library finds", "by the library: the numbers are big-endian".
    [[nodiscard]] virtual std::string reading() const = 0;

    /// Copies rows [first, first + count) to `out`, which has count * row_bytes() bytes: row-major, little-endian, in the type of
    /// the description. Chunks that were never written give the fill value. Any number of threads may call it. Fails when the
    /// file has changed since it was opened; `out` is undefined then.
    virtual Status read_rows(std::uint64_t first, std::uint64_t count, std::span<std::byte> out) const = 0;
};

/// An open file and what is in it. The library must understand its structure; a hostile file can make the library fail in ways
/// that are not ours, so files come from people one trusts that far. Chunks are unpacked as hostile.
class Hdf5File {
public:
    static Result<std::shared_ptr<const Hdf5File>> open(const Path& path);
    virtual ~Hdf5File() = default;

    /// All data sets, also those in groups, by name.
    [[nodiscard]] virtual const std::vector<Hdf5Description>& datasets() const = 0;
    [[nodiscard]] virtual const Hdf5Description* find(std::string_view name) const = 0;
    /// The file's attributes that are texts or single numbers, as text.
    [[nodiscard]] virtual const std::map<std::string, std::string, std::less<>>& attributes() const = 0;
    /// An error names the attributes that are there.
    [[nodiscard]] virtual Result<std::string> attribute(std::string_view name) const = 0;

    /// Fails for a name that is not there (the error lists those that are) and for a type that is not
    /// read.
    [[nodiscard]] virtual Result<std::shared_ptr<const Hdf5Dataset>> dataset(std::string_view name) const = 0;
};

}  // namespace millrace::io
