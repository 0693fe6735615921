#pragma once
// Bytes of a file one piece after another, unpacked on the way when they are gzip: a reader need not know which.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

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

/// Fails for what is no regular file, and for a gzip file (told by its first bytes, whatever its name) when have_gzip() is false.
Result<std::unique_ptr<ByteSource>> open_source(const Path& path);

/// `text` in pieces of at most `piece` bytes, for tests; must outlive the source.
class TextSource : public ByteSource {
public:
    explicit TextSource(std::string_view text, std::size_t piece = std::size_t{1} << 20) : text_(text), piece_(piece) {}
    Result<std::size_t> read(std::span<char> into) override;

private:
    std::string_view text_;
    std::size_t piece_;
};

}  // namespace millrace::io
