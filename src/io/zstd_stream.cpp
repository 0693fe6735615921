#include "io/packing.h"

#include <fmt/format.h>

#if defined(MILLRACE_HAVE_ZSTD)
#include <zstd.h>

namespace millrace::io {
namespace {

class ZstdSink final : public PackingSink {
public:
    ZstdSink(ByteSink& out, int level) : out_(out), context_(ZSTD_createCCtx()), buffer_(ZSTD_CStreamOutSize()) {
        MILLRACE_ASSERT(context_ != nullptr, "no memory for a compressor");
        ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, level);
        ZSTD_CCtx_setParameter(context_, ZSTD_c_checksumFlag, 1);
    }
    ~ZstdSink() override { ZSTD_freeCCtx(context_); }
    Status write(Bytes bytes) override { return push(bytes, ZSTD_e_continue); }
    Status finish() override { return push({}, ZSTD_e_end); }

private:
    Status push(Bytes bytes, ZSTD_EndDirective directive) {
        ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
        std::size_t left = 0;
        do {
            ZSTD_outBuffer to{buffer_.data(), buffer_.size(), 0};
            left = ZSTD_compressStream2(context_, &to, &in, directive);
            if (ZSTD_isError(left) != 0) return Error{fmt::format("cannot compress: {}", ZSTD_getErrorName(left))};
            MILLRACE_TRY(out_.write({buffer_.data(), to.pos}));
        } while (in.pos < in.size || (directive == ZSTD_e_end && left > 0));
        return base::ok();
    }

    ByteSink& out_;
    ZSTD_CCtx* context_;
    std::vector<std::byte> buffer_;
};

}  // namespace

bool have_zstd() { return true; }

std::unique_ptr<PackingSink> pack_zstd(ByteSink& out, int level) { return std::make_unique<ZstdSink>(out, level); }

Result<std::vector<std::byte>> decompress_zstd(Bytes bytes, std::uint64_t size, const Path& place) {
    std::vector<std::byte> out;
    try {
        out.resize(size);
    } catch (const std::exception&) {
        return Error{fmt::format("not enough memory to unpack {} bytes", size), place.string(), 1};
    }
    const std::size_t got = ZSTD_decompress(out.data(), out.size(), bytes.data(), bytes.size());
    if (ZSTD_isError(got) != 0) return Error{fmt::format("cannot unpack: {}", ZSTD_getErrorName(got)), place.string()};
    if (got != size) return Error{fmt::format("unpacks to {} bytes instead of {}", got, size), place.string()};
    return out;
}

}  // namespace millrace::io

#else

namespace millrace::io {
namespace {

class PlainSink final : public PackingSink {
public:
    explicit PlainSink(ByteSink& out) : out_(out) {}
    Status write(Bytes bytes) override { return out_.write(bytes); }
    Status finish() override { return base::ok(); }

private:
    ByteSink& out_;
};

}  // namespace

bool have_zstd() { return false; }

std::unique_ptr<PackingSink> pack_zstd(ByteSink& out, int) { return std::make_unique<PlainSink>(out); }

Result<std::vector<std::byte>> decompress_zstd(Bytes, std::uint64_t, const Path& place) {
    return Error{"is compressed with zstd, which this build does not have; unpack it with `zstd -d`", place.string(), 1};
}

}  // namespace millrace::io

#endif
