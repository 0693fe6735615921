#include "io/zstd_stream.h"

#include <fmt/format.h>

#if defined(MILLRACE_HAVE_ZSTD)
#include <zstd.h>

namespace millrace::io {

bool have_zstd() { return true; }

struct ZstdSink::State {
    ByteSink* out = nullptr;
    ZSTD_CCtx* context = nullptr;
    std::vector<std::byte> buffer = std::vector<std::byte>(ZSTD_CStreamOutSize());

    Status push(Bytes bytes, ZSTD_EndDirective directive) {
        ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
        std::size_t left = 0;
        do {
            ZSTD_outBuffer to{buffer.data(), buffer.size(), 0};
            left = ZSTD_compressStream2(context, &to, &in, directive);
            if (ZSTD_isError(left) != 0) return Error{fmt::format("cannot compress: {}", ZSTD_getErrorName(left))};
            MILLRACE_TRY(out->write({buffer.data(), to.pos}));
        } while (in.pos < in.size || (directive == ZSTD_e_end && left > 0));
        return base::ok();
    }
};

ZstdSink::ZstdSink(ByteSink& out, int level) : state_(std::make_unique<State>()) {
    state_->out = &out;
    state_->context = ZSTD_createCCtx();
    MILLRACE_ASSERT(state_->context != nullptr, "no memory for a compressor");
    ZSTD_CCtx_setParameter(state_->context, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(state_->context, ZSTD_c_checksumFlag, 1);
}

ZstdSink::~ZstdSink() { ZSTD_freeCCtx(state_->context); }

Status ZstdSink::write(Bytes bytes) { return state_->push(bytes, ZSTD_e_continue); }
Status ZstdSink::finish() { return state_->push({}, ZSTD_e_end); }

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

bool have_zstd() { return false; }

struct ZstdSink::State {
    ByteSink* out = nullptr;
};

ZstdSink::ZstdSink(ByteSink& out, int) : state_(std::make_unique<State>(State{&out})) {}
ZstdSink::~ZstdSink() = default;
Status ZstdSink::write(Bytes bytes) { return state_->out->write(bytes); }
Status ZstdSink::finish() { return base::ok(); }

Result<std::vector<std::byte>> decompress_zstd(Bytes, std::uint64_t, const Path& place) {
    return Error{"is compressed with zstd, which this build does not have; unpack it with `zstd -d`", place.string(), 1};
}

}  // namespace millrace::io

#endif
