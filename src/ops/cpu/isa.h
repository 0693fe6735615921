#pragma once
// Tables of functions that exist once per instruction set. A source NAME.simd.cpp is compiled for each of them
// (src/CMakeLists.txt) with the namespace MILLRACE_ISA and kVectorBytes, and defines a constant table there. What such a source
// includes must not contain inline functions: those would be compiled for one instruction set and run under another.

#if defined(__x86_64__)
#define MILLRACE_ISA_TABLE(Table, name) \
    namespace portable { \
    extern const Table name; \
    } \
    namespace avx2 { \
    extern const Table name; \
    } \
    namespace avx512 { \
    extern const Table name; \
    }
/// The table of the instruction set with vectors of so many bytes.
#define MILLRACE_ISA_PICK(name, bytes) ((bytes) == 64 ? avx512::name : (bytes) == 32 ? avx2::name : portable::name)
#else
#define MILLRACE_ISA_TABLE(Table, name) \
    namespace portable { \
    extern const Table name; \
    }
#define MILLRACE_ISA_PICK(name, bytes) ((void)(bytes), portable::name)
#endif
