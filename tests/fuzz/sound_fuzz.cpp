// libFuzzer over the headers and samples of sound files: `make fuzz`.

#include <cstddef>
#include <cstdint>

#include "fuzz/memory_file.h"
#include "fuzz/sound_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const millrace::fuzz::MemoryFile file("sound");
    millrace::fuzz::read_sound_bytes({reinterpret_cast<const char*>(data), size}, file.path);
    return 0;
}
