/* Walks the records of a batch of magic 2: checks that its inside is what its header says, byte after byte; and numbers
 * the records of several batches as those of one.
 *
 * Lives here: the same rules and verdicts as protocol/records_walk.py, where they stand as a table, and
 * protocol/renumbering.py; they are held against each other by tests/property/test_records_walk.py and
 * test_renumbering.py. Must never come in: memory of its own, the C library, Python.h: one file serves every Python and
 * every libc of a machine.
 *
 * A walk is a `struct walk`, fed pieces of any size, cut anywhere. Nothing is copied or read beyond the piece.
 * A renumbering is a `struct renumbering`, called twice: to check and measure, and to write.
 * The structs' fields stand in compiled/library.py once more, in this order.
 */
#include <stddef.h>
#include <stdint.h>

#define TIMESTAMP_MAX 253402300799999LL /* the end of the year 9999, in ms */

enum verdict {
    GOES_ON,
    RECORD_LENGTH,
    ATTRIBUTES,
    VARINT,
    BEYOND_RECORD,
    OFFSET_DELTA,
    NEGATIVE_LENGTH,
    HEADERS_COUNT,
    HEADER_KEY,
    RECORD_REST,
    MORE_BYTES,
    FEWER_RECORDS,
    TIMESTAMP,
    KEYLESS,
    NO_ROOM, /* of a renumbering: what was measured is not what is written */
};

enum field { SIZE, FLAGS, TIME, OFFSET, KEY, VALUE, HEADERS, NAME, CONTENT };

struct walk {
    int64_t base_timestamp; /* the header's, ms */
    int64_t count;          /* records that the header claims */
    int32_t keys_required;  /* 1 in compacted topics */
    int32_t times_checked;  /* 0 where the broker stamps its own time */
    int64_t max_timestamp;  /* the greatest timestamp met, at least -1 */
    int64_t bad_time;       /* the first record with an impossible timestamp, or -1 */
    int64_t keyless;        /* the first record without the key that it needs, or -1 */
    int64_t records;        /* records walked to their end */
    int64_t position;       /* bytes walked */
    int64_t left;           /* bytes of the record that are not walked or taken yet */
    int64_t skip;           /* bytes of a key or value still to be passed over */
    int64_t headers;        /* headers of the record still to come */
    uint64_t value;         /* the varint so far */
    int32_t shift;          /* bits of it so far */
    int32_t field;          /* what the next varint is */
    int32_t verdict;        /* stays once it is not GOES_ON */
};

static int64_t zigzag(uint64_t raw) { return (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1); }

static int impossible(int64_t time) { return time > TIMESTAMP_MAX || time < -TIMESTAMP_MAX; }

/* A timestamp's place among the records: wraps as Java's does, so that a huge base and a huge delta cannot hide. */
static void take_time(struct walk *w, int64_t delta) {
    int64_t time = (int64_t)((uint64_t)w->base_timestamp + (uint64_t)delta);
    if (w->times_checked && impossible(time) && w->bad_time < 0)
        w->bad_time = w->records;
    if (time > w->max_timestamp)
        w->max_timestamp = time;
}

/* The length of a key, value or header value; -1 is null. */
static int take_length(struct walk *w, int64_t length) {
    if (length < -1)
        return NEGATIVE_LENGTH;
    if (length > w->left)
        return BEYOND_RECORD;
    if (length > 0) {
        w->left -= length;
        w->skip = length;
    }
    return GOES_ON;
}

static int end_record(struct walk *w) {
    if (w->left)
        return RECORD_REST;
    w->records++;
    w->field = SIZE;
    return GOES_ON;
}

/* What a whole varint means where it stands; the next field, or a verdict. */
static int take(struct walk *w, int64_t number) {
    int verdict;
    switch (w->field) {
    case SIZE:
        if (number < 1)
            return RECORD_LENGTH;
        w->left = number;
        break;
    case FLAGS: /* one byte, which means nothing */
        break;
    case TIME:
        take_time(w, number);
        break;
    case OFFSET:
        if (number != w->records)
            return OFFSET_DELTA;
        break;
    case KEY:
        if (number == -1 && w->keys_required && w->keyless < 0)
            w->keyless = w->records;
        if ((verdict = take_length(w, number)))
            return verdict;
        break;
    case VALUE:
        if ((verdict = take_length(w, number)))
            return verdict;
        break;
    case HEADERS:
        if (number < 0 || number > w->left)
            return HEADERS_COUNT;
        w->headers = number;
        if (!number)
            return end_record(w);
        break;
    case NAME:
        if (number < 0)
            return HEADER_KEY;
        if ((verdict = take_length(w, number)))
            return verdict;
        break;
    default: /* CONTENT */
        if ((verdict = take_length(w, number)))
            return verdict;
        if (!--w->headers)
            return end_record(w);
        w->field = NAME;
        return GOES_ON;
    }
    w->field++;
    return GOES_ON;
}

/* A varint of at most 3 bytes; NULL when it is longer or may be cut. */
static const uint8_t *short_varint(const uint8_t *at, const uint8_t *end, int64_t *number) {
    if (end - at < 3)
        return NULL;
    uint32_t raw = *at++;
    if (raw & 128) {
        raw = (raw & 127) | (uint32_t)*at << 7;
        if (*at++ & 128) {
            if (*at & 128)
                return NULL;
            raw = (raw & 16383) | (uint32_t)*at++ << 14;
        }
    }
    *number = zigzag(raw);
    return at;
}

/* A record that lies whole in the piece, has no headers and is right: the place behind it. Else NULL, and nothing has
 * happened: what is long, cut or wrong is walked field by field. */
static const uint8_t *pass_plain_record(struct walk *w, const uint8_t *at, const uint8_t *end) {
    int64_t size, delta, offset, length;
    if (!(at = short_varint(at, end, &size)) || size < 6 || size > end - at)
        return NULL;
    const uint8_t *stop = at + size;
    if (*at & 128)
        return NULL;
    if (!(at = short_varint(at + 1, end, &delta)) || !(at = short_varint(at, end, &offset)) || offset != w->records)
        return NULL;
    int64_t time = (int64_t)((uint64_t)w->base_timestamp + (uint64_t)delta);
    if (w->times_checked && impossible(time))
        return NULL;
    if (!(at = short_varint(at, end, &length)) || length < -1 || length > stop - at || (length < 0 && w->keys_required))
        return NULL;
    if (!(at = short_varint(length > 0 ? at + length : at, end, &length)) || length < -1 || length > stop - at)
        return NULL;
    at += length > 0 ? length : 0;
    if (at + 1 != stop || *at)
        return NULL;
    if (time > w->max_timestamp)
        w->max_timestamp = time;
    w->records++;
    return stop;
}

static int walk_piece(struct walk *w, const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        if (w->skip) {
            int64_t step = end - at < w->skip ? end - at : w->skip;
            at += step;
            w->skip -= step;
            continue;
        }
        if (w->field == SIZE && !w->shift && w->records < w->count) {
            const uint8_t *behind = pass_plain_record(w, at, end);
            if (behind) {
                at = behind;
                continue;
            }
        }
        uint8_t byte = *at++;
        int last_shift = w->field == TIME ? 63 : 28;
        if (w->field != SIZE) {
            if (--w->left < 0)
                return BEYOND_RECORD;
        } else if (w->records == w->count)
            return MORE_BYTES;
        if (w->field == FLAGS && byte & 128)
            return ATTRIBUTES;
        w->value |= (uint64_t)(byte & 127) << w->shift;
        if (w->shift == last_shift && byte > (last_shift == 63 ? 1 : 15))
            return VARINT; /* longer than 5 or 10 bytes, or more than 32 or 64 bits */
        if (byte & 128) {
            w->shift += 7;
            continue;
        }
        int64_t number = zigzag(w->value);
        w->value = 0;
        w->shift = 0;
        int verdict = take(w, number);
        if (verdict)
            return verdict;
    }
    return GOES_ON;
}

static int end_walk(const struct walk *w) {
    if (w->field != SIZE || w->skip || w->shift || w->records != w->count)
        return FEWER_RECORDS;
    if (w->bad_time >= 0)
        return TIMESTAMP;
    return w->keyless >= 0 ? KEYLESS : GOES_ON;
}

/* Begins a walk. */
void records_walk_begin(struct walk *w, int64_t base_timestamp, int64_t count, int keys_required, int times_checked) {
    *w = (struct walk){.base_timestamp = base_timestamp, .count = count, .max_timestamp = -1, .keyless = -1,
                       .keys_required = keys_required, .times_checked = times_checked};
    w->bad_time = times_checked && impossible(base_timestamp) ? 0 : -1;
}

/* Walks the next piece, which is the last one when `last` is not 0; the verdict so far. */
int records_walk_feed(struct walk *w, const uint8_t *piece, size_t size, int last) {
    if (!w->verdict) {
        w->verdict = walk_piece(w, piece, piece + size);
        w->position += (int64_t)size;
        if (!w->verdict && last)
            w->verdict = end_walk(w);
    }
    return w->verdict;
}

/* The whole walk at once. */
int records_walk(struct walk *w, int64_t base_timestamp, int64_t count, int keys_required, int times_checked,
                 const uint8_t *area, size_t size) {
    records_walk_begin(w, base_timestamp, count, keys_required, times_checked);
    return records_walk_feed(w, area, size, 1);
}

/* ---- Renumbering ---- */

#define BATCH_HEADER 61
#define LOG_APPEND_TIME 8

struct wanted { /* one piece: a batch's header as it was and its records, unpacked; which source offsets are wanted */
    int64_t size;
    int64_t first_offset;
    int64_t end_offset;
};

struct run { /* of source offsets */
    int64_t first_offset;
    int64_t count;
};

struct renumbering {
    const uint8_t *area; /* the pieces, one behind the other */
    int64_t area_size;
    const struct wanted *wanted;
    int64_t pieces;
    uint8_t *out; /* where records go, or NULL: only measure */
    int64_t out_size;
    struct run *run;        /* where runs go, unless `out` is NULL */
    int64_t runs_max;       /* room for them */
    int64_t written;        /* bytes of the records */
    int64_t records;        /* how many there are */
    int64_t runs;           /* how many runs */
    int64_t run_end;        /* the offset behind the last run */
    int64_t base_timestamp; /* the first record's */
    int64_t max_timestamp;  /* the greatest */
    int64_t piece;          /* where it ended: which piece */
    int64_t record;         /* and which of its records */
};

static uint64_t big_endian(const uint8_t *at, int bytes) {
    uint64_t number = 0;
    while (bytes--)
        number = number << 8 | *at++;
    return number;
}

/* A varint of at most 32 bits (last_shift 28) or 64 (63); a verdict, or the place behind it in *at. */
static int long_varint(const uint8_t **at, const uint8_t *stop, int last_shift, int64_t *number) {
    uint64_t raw = 0;
    for (int shift = 0;; shift += 7) {
        if (*at >= stop)
            return BEYOND_RECORD;
        uint8_t byte = *(*at)++;
        if (shift == last_shift && byte > (last_shift == 63 ? 1 : 15))
            return VARINT;
        raw |= (uint64_t)(byte & 127) << shift;
        if (!(byte & 128)) {
            *number = zigzag(raw);
            return GOES_ON;
        }
    }
}

static inline int varint(const uint8_t **at, const uint8_t *stop, int last_shift, int64_t *number) {
    if (*at < stop && !(**at & 128)) {
        *number = zigzag(*(*at)++);
        return GOES_ON;
    }
    return long_varint(at, stop, last_shift, number);
}

/* A length and that many bytes, which are passed over; -1 is null. */
static inline int pass(const uint8_t **at, const uint8_t *stop, int nullable) {
    int64_t length;
    int verdict = varint(at, stop, 28, &length);
    if (verdict)
        return verdict;
    if (!nullable && length < 0)
        return HEADER_KEY;
    if (length < -1)
        return NEGATIVE_LENGTH;
    if (length > stop - *at)
        return BEYOND_RECORD;
    *at += length > 0 ? length : 0;
    return GOES_ON;
}

/* Key, value and headers, which must end at `stop`. */
static int check_content(const uint8_t *at, const uint8_t *stop) {
    int64_t headers;
    int verdict;
    if ((verdict = pass(&at, stop, 1)) || (verdict = pass(&at, stop, 1)) || (verdict = varint(&at, stop, 28, &headers)))
        return verdict;
    if (headers < 0 || headers > stop - at)
        return HEADERS_COUNT;
    while (headers--)
        if ((verdict = pass(&at, stop, 0)) || (verdict = pass(&at, stop, 1)))
            return verdict;
    return at == stop ? GOES_ON : RECORD_REST;
}

static int put_varint(uint8_t *to, int64_t number) {
    uint64_t raw = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    int size = 0;
    for (; raw > 127; raw >>= 7)
        to[size++] = (uint8_t)(raw | 128);
    to[size++] = (uint8_t)raw;
    return size;
}

/* memcpy by the compiler's own means: there is no C library, and a loop of bytes is some four times slower. */
static void copy(uint8_t *to, const uint8_t *from, int64_t size) {
    while (size >= 16) {
        uint64_t first, second;
        __builtin_memcpy(&first, from, 8);
        __builtin_memcpy(&second, from + 8, 8);
        __builtin_memcpy(to, &first, 8);
        __builtin_memcpy(to + 8, &second, 8);
        to += 16;
        from += 16;
        size -= 16;
    }
    while (size-- > 0)
        *to++ = *from++;
}

/* A wanted record; 0 when there is no room. */
static int take_record(struct renumbering *r, int64_t offset, int64_t time, uint8_t flags, const uint8_t *content,
                       int64_t size) {
    if (!r->records) {
        r->base_timestamp = r->max_timestamp = time;
    } else if (time > r->max_timestamp)
        r->max_timestamp = time;
    if (!r->records || offset != r->run_end) {
        if (r->out) {
            if (r->runs >= r->runs_max)
                return 0;
            r->run[r->runs] = (struct run){offset, 0};
        }
        r->runs++;
    }
    r->run_end = (int64_t)((uint64_t)offset + 1);
    uint8_t front[32], length[10];
    front[0] = flags;
    int front_size = 1 + put_varint(front + 1, (int64_t)((uint64_t)time - (uint64_t)r->base_timestamp));
    front_size += put_varint(front + front_size, r->records);
    int length_size = put_varint(length, front_size + size);
    int64_t all = length_size + front_size + size;
    if (r->out) {
        if (all > r->out_size - r->written)
            return 0;
        r->run[r->runs - 1].count++;
        uint8_t *to = r->out + r->written;
        copy(to, length, length_size);
        copy(to + length_size, front, front_size);
        copy(to + length_size + front_size, content, size);
    }
    r->written += all;
    r->records++;
    return 1;
}

static int renumber_piece(struct renumbering *r, const uint8_t *batch, const struct wanted *wanted) {
    uint64_t base_offset = big_endian(batch, 8);
    int append_time = batch[22] & LOG_APPEND_TIME;
    int32_t last_delta = (int32_t)big_endian(batch + 23, 4), count = (int32_t)big_endian(batch + 57, 4);
    uint64_t base = big_endian(batch + 27, 8), greatest = big_endian(batch + 35, 8);
    const uint8_t *at = batch + BATCH_HEADER, *end = batch + wanted->size;
    int64_t last = -1;
    for (r->record = 0; r->record < count; r->record++) {
        int64_t size, time_delta, delta;
        int verdict = varint(&at, end, 28, &size);
        if (verdict)
            return verdict == BEYOND_RECORD ? FEWER_RECORDS : verdict;
        if (size < 1)
            return RECORD_LENGTH;
        if (size > end - at)
            return FEWER_RECORDS;
        const uint8_t *stop = at + size;
        uint8_t flags = *at++;
        if ((verdict = varint(&at, stop, 63, &time_delta)) || (verdict = varint(&at, stop, 28, &delta)))
            return verdict;
        if (delta <= last || delta > last_delta)
            return OFFSET_DELTA;
        last = delta;
        if ((verdict = check_content(at, stop)))
            return verdict;
        int64_t offset = (int64_t)(base_offset + (uint64_t)delta);
        int64_t time = (int64_t)(append_time ? greatest : base + (uint64_t)time_delta);
        if (offset >= wanted->first_offset && offset < wanted->end_offset &&
            !take_record(r, offset, time, flags, at, stop - at))
            return NO_ROOM;
        at = stop;
    }
    return at == end ? GOES_ON : MORE_BYTES;
}

/* Checks all pieces and measures, or writes when there is `out`; the verdict, with `piece` and `record` where it fell. */
int records_renumber(struct renumbering *r) {
    int64_t position = 0;
    r->written = r->records = r->runs = r->run_end = r->base_timestamp = r->max_timestamp = r->record = 0;
    for (r->piece = 0; r->piece < r->pieces; r->piece++) {
        const struct wanted *wanted = r->wanted + r->piece;
        if (wanted->size < BATCH_HEADER || wanted->size > r->area_size - position)
            return FEWER_RECORDS;
        int verdict = renumber_piece(r, r->area + position, wanted);
        if (verdict)
            return verdict;
        position += wanted->size;
    }
    return GOES_ON;
}
