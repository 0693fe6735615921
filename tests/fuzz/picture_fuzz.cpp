// libFuzzer over PNG and JPEG pictures: `make fuzz`.

#include <cstddef>
#include <cstdint>

#include "fuzz/picture_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    millrace::fuzz::read_picture_bytes({reinterpret_cast<const char*>(data), size});
    return 0;
}
