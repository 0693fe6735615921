#pragma once
#include "io/safetensors.h"

namespace millrace::test {

inline io::Result<io::WrittenFile> save_safetensors(const io::Path& path, std::span<const io::TensorView> tensors,
                                                    const io::Metadata& metadata = {}) {
    return io::write_atomically(path, [&](io::FileWriter& writer) -> io::Status {
        MILLRACE_TRY(io::write_safetensors(writer, tensors, metadata, path));
        return base::ok();
    });
}

}  // namespace millrace::test
