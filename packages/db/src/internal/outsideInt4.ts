const int4Min = -(2n ** 31n)
const int4Max = 2n ** 31n - 1n

/** Flips bit 62 of a key in the range of int4, so that it cannot meet a host's `hashtext` key. */
export const outsideInt4 = (key: bigint): bigint =>
  key >= int4Min && key <= int4Max ? BigInt.asIntN(64, key ^ (1n << 62n)) : key
