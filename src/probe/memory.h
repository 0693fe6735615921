#pragma once
// Memory of the own process by its address.

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace millrace::probe {

/// For addresses that come as numbers: from tables of ELF files, arguments of calls, handles.
template <class T>
T* pointer_to(std::uint64_t address) {
    return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr): there is no pointer to begin with
}

/// Reads without the danger of a fault: asks the kernel, which answers instead of faulting. About a microsecond per read.
struct CarefulReader {
    bool denied = false;  ///< the kernel does not allow it here
    bool read(std::uint64_t address, void* to, std::size_t size) {
        const iovec local{to, size}, remote{pointer_to<void>(address), size};
        if (::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size)) return true;
        if (errno == EPERM || errno == ENOSYS) denied = true;
        return false;
    }
};

/// For memory that is known to be there.
struct DirectReader {
    bool read(std::uint64_t address, void* to, std::size_t size) {
        ::memcpy(to, pointer_to<const void>(address), size);
        return true;
    }
};

}  // namespace millrace::probe
