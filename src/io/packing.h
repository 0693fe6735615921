#pragma once
// Bytes of a file one piece after another, unpacked on the way when they are gzip: a reader need not know which.

#include <cstdint>
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

/// Keeps what is poured into it.
class MemorySink final : public ByteSink {
public:
    Status write(Bytes more) override {
        bytes.insert(bytes.end(), more.begin(), more.end());
        return base::ok();
    }

    std::vector<std::byte> bytes;
};

/// Compresses what is poured into it and passes it on to a sink that must outlive it.
class PackingSink : public ByteSink {
public:
    /// Ends the packed bytes; nothing may be written afterwards.
    virtual Status finish() = 0;
};

/// Whether this build knows gzip (zlib).
bool have_gzip();
/// Only where have_gzip().
std::unique_ptr<PackingSink> pack_gzip(ByteSink& out, int level = 6);
/// What is packed in `packed`, which may be several gzip files one after another. An error when have_gzip() is false.
Result<std::unique_ptr<ByteSource>> unpack_gzip(std::unique_ptr<ByteSource> packed, const Path& place);

/// Exactly `size` bytes from what deflate packed, without a header; more, fewer or damaged ones are an error, as is have_gzip()
/// false. `place` names the file.
Result<std::vector<std::byte>> inflate_raw(Bytes packed, std::uint64_t size, const Path& place);

/// Whether this build knows zstd; without it checkpoints are stored as they are.
bool have_zstd();
/// Without zstd, passes on what is poured into it as it is.
std::unique_ptr<PackingSink> pack_zstd(ByteSink& out, int level = 3);
/// Exactly `size` bytes from the compressed `bytes`; more, fewer or damaged ones are an error. `place` names the file.
Result<std::vector<std::byte>> decompress_zstd(Bytes bytes, std::uint64_t size, const Path& place);

}  // namespace millrace::io
