#pragma once
// Bytes of a file one piece after another, unpacked on the way when they are gzip: a reader need not know which.

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace millrace::io {

class ByteSource {
public:
    virtual ~ByteSource() = default;
    /// Fills the beginning of `into` and says how much; 0 is the end.
    virtual Result<std::size_t> read(std::span<char> into) = 0;
    /// Share of the file that was taken in, 0 to 1; for a progress bar.
    [[nodiscard]] virtual double progress() const { return 0; }
    /// At the end: why it came early, empty when it did not. Packed files that were cut or damaged are read as far as they go.
    [[nodiscard]] virtual std::string_view damage() const { return {}; }
};

/// Fails for what is no regular file, and for a gzip file (by its first bytes, whatever its name) when have_gzip() is false.
Result<std::unique_ptr<ByteSource>> open_source(const Path& path);

/// All that open_source() gives. Refuses more than `cap` bytes, and packed files that were cut or damaged.
Result<std::vector<std::byte>> read_unpacked(const Path& path, std::size_t cap);

}  // namespace millrace::io
