// Parquet's metadata: Thrift's compact form, and what a footer says of column chunks.
// Files are not trusted: whatever a length says, only bytes that are there are read.
#pragma once
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace temper_etl::parquet {

struct Short : std::runtime_error {
    Short() : std::runtime_error("its bytes end early") {}
};

[[noreturn]] inline void fail(const char *why) { throw std::runtime_error(why); }

// Bytes that are still to be read.
struct Bytes {
    const uint8_t *p = nullptr, *end = nullptr;

    size_t left() const { return size_t(end - p); }

    const uint8_t *take(uint64_t count) {
        if (count > left()) throw Short();
        p += count;
        return p - count;
    }

    uint32_t u32() {
        uint32_t v;
        std::memcpy(&v, take(4), 4);
        return v;
    }

    uint64_t varint() {
        uint64_t v = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            uint8_t byte = *take(1);
            v |= uint64_t(byte & 127) << shift;
            if (byte < 128) return v;
        }
        fail("a number is too long");
    }

    int64_t zigzag() {
        uint64_t v = varint();
        return int64_t(v >> 1) ^ -int64_t(v & 1);
    }
};

// Thrift's types as the compact form numbers them.
enum Wire { kTrue = 1, kFalse = 2, kByte = 3, kI16 = 4, kI32 = 5, kI64 = 6, kDouble = 7,
            kBinary = 8, kList = 9, kSet = 10, kMap = 11, kStruct = 12 };

template <typename Field> void read_struct(Bytes &in, Field field) {
    for (int id = 0;;) {
        uint8_t byte = *in.take(1);
        if ((byte & 15) == 0) return;
        id = byte >> 4 ? id + (byte >> 4) : int(in.zigzag());
        field(id, byte & 15);
    }
}

inline void skip(Bytes &in, int type, int depth = 0, bool in_list = false) {
    if (depth > 8) fail("its header is nested too deep");
    switch (type) {
        case kTrue:
        case kFalse: in.take(in_list); return;  // in a structure the type is the value
        case kByte: in.take(1); return;
        case kI16:
        case kI32:
        case kI64: in.varint(); return;
        case kDouble: in.take(8); return;
        case kBinary: in.take(in.varint()); return;
        case kList:
        case kSet: {
            uint8_t byte = *in.take(1);
            uint64_t count = byte >> 4;
            if (count == 15) count = in.varint();
            for (; count; count--) skip(in, byte & 15, depth + 1, true);
            return;
        }
        case kStruct:
            return read_struct(in, [&](int, int inner) { skip(in, inner, depth + 1); });
        default: fail("its header has an unknown type");
    }
}

template <typename Item> void read_list(Bytes &in, int type, Item item) {
    uint8_t byte = *in.take(1);
    uint64_t count = byte >> 4;
    if (count == 15) count = in.varint();
    if (count && (byte & 15) != type) fail("its metadata has a wrong type");
    for (; count; count--) item();
}

// One column chunk; what its metadata lacks is -1.
struct ChunkMeta {
    int64_t type = -1, codec = -1, values = -1, unpacked = -1, size = -1;
    int64_t data_page = -1, dictionary_page = -1;
    uint64_t encodings = 0;  // bit k: encoding k is used
    bool elsewhere = false;  // in another file, or encrypted
};

struct GroupMeta {
    int64_t rows = -1;
    std::vector<ChunkMeta> chunks;
};

inline ChunkMeta read_chunk(Bytes &in) {
    ChunkMeta c;
    auto integer = [&](int type, int64_t &to) {
        if (type == kI32 || type == kI64) to = in.zigzag();
        else skip(in, type);
    };
    read_struct(in, [&](int id, int type) {
        if (id != 3 || type != kStruct) {
            c.elsewhere |= id == 1 || id == 8 || id == 9;
            return skip(in, type);
        }
        read_struct(in, [&](int inner, int kind) {
            if (inner == 1) integer(kind, c.type);
            else if (inner == 2 && kind == kList)
                read_list(in, kI32, [&] { c.encodings |= uint64_t(1) << (in.zigzag() & 63); });
            else if (inner == 4) integer(kind, c.codec);
            else if (inner == 5) integer(kind, c.values);
            else if (inner == 6) integer(kind, c.unpacked);
            else if (inner == 7) integer(kind, c.size);
            else if (inner == 9) integer(kind, c.data_page);
            else if (inner == 11) integer(kind, c.dictionary_page);
            else skip(in, kind);
        });
    });
    return c;
}

inline std::vector<GroupMeta> read_footer(Bytes in) {
    std::vector<GroupMeta> groups;
    read_struct(in, [&](int id, int type) {
        if (id != 4 || type != kList) return skip(in, type);
        read_list(in, kStruct, [&] {
            GroupMeta group;
            read_struct(in, [&](int inner, int kind) {
                if (inner == 1 && kind == kList)
                    read_list(in, kStruct, [&] { group.chunks.push_back(read_chunk(in)); });
                else if (inner == 3 && kind == kI64) group.rows = in.zigzag();
                else skip(in, kind);
            });
            groups.push_back(std::move(group));
        });
    });
    return groups;
}

}  // namespace temper_etl::parquet
