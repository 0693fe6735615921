#pragma once
// Bytes packed on their way to a file, and unpacked again.

#include <cstdint>
#include <memory>
#include <vector>

#include "io/byte_source.h"
#include "io/file.h"

namespace millrace::io {

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
