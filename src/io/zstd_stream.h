#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "io/file.h"

namespace millrace::io {

/// Whether this build can compress; without it checkpoints are stored as they are.
bool have_zstd();

/// Compresses what is poured into it and passes it on to `out`, which must outlive it.
class ZstdSink : public ByteSink {
public:
    explicit ZstdSink(ByteSink& out, int level = 3);
    ~ZstdSink() override;

    Status write(Bytes bytes) override;
    /// Ends the frame; nothing may be written afterwards.
    Status finish();

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Exactly `size` bytes from the compressed `bytes`; more, fewer or damaged ones are an error. `place` names the file.
Result<std::vector<std::byte>> decompress_zstd(Bytes bytes, std::uint64_t size, const Path& place);

}  // namespace millrace::io
