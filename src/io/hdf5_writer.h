#pragma once
// Writes HDF5 files that h5py, MATLAB and the library's own tools read: numeric data sets and texts as attributes of the file.

#include <cstdint>
#include <memory>
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

}  // namespace millrace::io
