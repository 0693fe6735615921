#pragma once
#include <memory>

#include "io/byte_source.h"
#include "io/file.h"

namespace millrace::io {

/// Whether this build knows gzip (zlib).
bool have_gzip();

/// What is packed in `packed`, which may be several gzip files one after another. An error when have_gzip() is false.
Result<std::unique_ptr<ByteSource>> unpack_gzip(std::unique_ptr<ByteSource> packed, const Path& place);

/// Compresses what is poured into it and passes it on to `out`, which must outlive it. Only where have_gzip().
class GzipSink : public ByteSink {
public:
    explicit GzipSink(ByteSink& out, int level = 6);
    ~GzipSink() override;

    Status write(Bytes bytes) override;
    /// Ends the file; nothing may be written afterwards.
    Status finish();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace millrace::io
